"""Start and end processes, and note the signals they receive."""

import atexit
import logging
import os
import signal
import threading
from typing import Any

import torch.distributed as dist
from lightning_fabric import Fabric

from varscale.core.processes import check_accelerator


def launch(
    devices: int,
    *,
    num_nodes: int = 1,
    accelerator: str = "auto",
    strategy: str = "auto",
    precision: Any = "32-true",
) -> Fabric:
    """Start Fabric, and its processes if there are several."""
    for name in ("lightning.fabric", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    check_accelerator(accelerator, devices)
    several = devices * num_nodes > 1 or strategy == "ddp"
    fabric = Fabric(
        accelerator=accelerator,
        devices=devices,
        num_nodes=num_nodes,
        strategy="ddp" if several else "auto",
        precision=precision,
    )
    _join_again(fabric)
    fabric.launch()
    if several:
        atexit.register(_leave)
    return fabric


def _leave() -> None:
    """Leave the group before the interpreter ends: its threads must not outlive it."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _join_again(fabric: Fabric) -> None:
    """Rendezvous under another name after torchrun has restarted its workers.

    Its store still has the addresses of the workers that died; whoever reads them waits for ever.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0":
        return
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(*place, world, is_master=False)  # type: ignore[attr-defined]
    backend = "nccl" if fabric.device.type == "cuda" else "gloo"
    named = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=named, rank=rank, world_size=world)


class Signals:
    """Notes SIGINT and SIGTERM instead of dying; a second SIGINT ends the process."""

    def __init__(self) -> None:
        self.received = 0

    def __enter__(self) -> "Signals":
        self.before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _: object) -> None:
        if self.received == number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
