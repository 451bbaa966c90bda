"""Keep freed memory in the process.

glibc hands every large tensor back to the kernel when it is freed and has it faulted in again, page
by page, at the next step. On a CPU that is a third to two thirds of a training step at 84x84.
"""

import ctypes
import sys

_KEEP = {
    -4: 0,  # M_MMAP_MAX: large blocks come from the heap too
    -1: 2**31 - 1,  # M_TRIM_THRESHOLD: its top is not given back
    -2: 256 << 20,  # M_TOP_PAD: it grows in large strides
}


def keep_memory() -> bool:
    """Ask glibc to keep what is freed, for this process, from now on.

    Call it before the first large tensor. The process stays as large as it ever was.

    Returns:
        Whether it could be done; where the C library is another one nothing happens.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl has no such function
        return False
    taken = [mallopt(option, value) == 1 for option, value in _KEEP.items()]
    return all(taken)
