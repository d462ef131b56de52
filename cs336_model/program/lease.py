"""A program's lease of its GPUs: asked for when everything is imported, held until it is given back, or the process has
ended.

Whoever starts the program listens on a UNIX socket and answers, when the GPUs are free, with their names and the files
whose locks lease them (SCM_RIGHTS, unix(7)). This process keeps the files open, so that the GPUs stay leased while it
lives, even where the one that gave the lease is killed. Imports no torch.
"""

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cs336_model.nvml import nvml

MESSAGE_BYTES, MOST_FILES = 65536, 64
GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"

GIVEN_BACK = b"given back"  # what a program says to who gave it the lease


@dataclass
class _Held:
    """What this process has of a lease: names of the GPUs, their locks, and who is told when they are given back."""

    gpus: tuple[str, ...] = ()
    locks: list[int] = field(default_factory=list)
    giver: socket.socket | None = None


_HELD = _Held()


def take_lease(address: Path | None) -> tuple[str, ...]:
    """Waits for the GPUs, and makes them the only ones that CUDA shows to this process; () where there is no address.

    Call it before anything asks CUDA for its devices: the driver reads the variable once. Raises ConnectionError where
    whoever gives the leases is gone or refuses: it says why.
    """
    if address is None:
        return ()
    nvml()
    giver = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    giver.connect(str(address))
    message, files, _, _ = socket.recv_fds(giver, MESSAGE_BYTES, MOST_FILES)
    if not message:
        raise ConnectionError("no lease of a GPU was given; the process that started this one says why")
    for file in files:
        os.set_inheritable(file, False)
    told = json.loads(message)
    locks = len(files) - told["staying"]  # the others stay open until this process is gone
    _HELD.locks, _HELD.giver = files[:locks], giver
    _HELD.gpus = tuple(told["gpus"])
    os.environ[GPUS_VARIABLE] = ",".join(_HELD.gpus)
    return _HELD.gpus


def check_leased(uuid: str | None) -> None:
    """Raises RuntimeError where this process works on a GPU, by its UUID, that is none of those it was leased: what was
    imported asked CUDA for its devices before there was a lease."""
    if uuid and _HELD.gpus and uuid not in _HELD.gpus and all(name.startswith("GPU-") for name in _HELD.gpus):
        raise RuntimeError(
            f"this process works on {uuid}, and was leased {', '.join(_HELD.gpus)}: an import asked CUDA for its"
            f" devices before the lease; name what imports it late, or set {GPUS_VARIABLE} to one GPU"
        )


def give_back_lease() -> None:
    """Lets others have the GPUs from now on; nothing without a lease. This process does nothing there any more, and has
    freed its memory. What it still has, a context, stays until it is gone: who needs all memory waits for that."""
    if _HELD.giver is None:
        return
    while _HELD.locks:
        os.close(_HELD.locks.pop())
    with suppress(ConnectionError):  # whoever gave the lease is gone
        _HELD.giver.send(GIVEN_BACK)
    _HELD.giver.close()
    _HELD.giver = None
