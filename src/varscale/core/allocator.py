"""Keep freed memory in the process.

glibc returns every large tensor to the kernel when it is freed, and the next step faults its pages
in again, one by one. On a CPU that is a third to two thirds of a training step at 84x84.
"""

import ctypes
import sys

_KEEP = {
    -4: 0,  # M_MMAP_MAX: take large blocks from the heap too
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: never shrink the heap
    -2: 256 << 20,  # M_TOP_PAD: grow the heap in large steps
}


def keep_memory() -> bool:
    """Ask glibc to keep freed memory from now on; `False` with another C library.

    Call it before the first large tensor. The process never shrinks afterwards.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no such function
        return False
    taken = [mallopt(option, value) == 1 for option, value in _KEEP.items()]
    return all(taken)
