"""A program's lease of its GPUs: requested when everything is imported, held until it is returned or the process ends.

The process that starts the program listens on a UNIX socket. When the GPUs are free, it answers with their names and
the files whose locks lease them (SCM_RIGHTS, unix(7)). This process keeps the files open, so that the GPUs stay leased
while it lives, even if the process that gave the lease is killed. Imports no torch.
"""

import json
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from cs336_model.nvidia_smi import nvml

MAX_MESSAGE_BYTES, MAX_FILES = 65536, 64  # of the answer with a lease
GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"

GIVEN_BACK = b"given back"  # what a program sends when it returns the lease


@dataclass
class HeldLease:
    """The part of a lease that this process has; empty without a lease."""

    gpus: tuple[str, ...] = ()  # names
    locks: list[int] = field(default_factory=list)  # descriptors of the files whose locks lease the GPUs
    giver: socket.socket | None = None  # the connection to the process that gave the lease


_LEASE = HeldLease()


def take_lease(address: Path | None) -> tuple[str, ...]:
    """Waits for the GPUs, makes them the only ones that CUDA shows to this process, and returns their names; () without
    an address.

    Call it before anything asks CUDA for its devices: the driver reads the variable once. Raises ConnectionError if the
    giver is gone or refuses; the output of the process that started this one says why.
    """
    if address is None:
        return ()
    nvml()  # initialised before the lease, so that no GPU waits for it
    giver = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    message, files = b"", []
    with suppress(ConnectionError, FileNotFoundError):  # the giver has ended, or removed its socket
        giver.connect(str(address))
        message, files, _, _ = socket.recv_fds(giver, MAX_MESSAGE_BYTES, MAX_FILES)
    if not message:
        giver.close()
        raise ConnectionError("no lease of a GPU was given; see the output of the process that started this one")
    for file in files:
        os.set_inheritable(file, False)
    answer = json.loads(message)
    presence_count = answer["presence"]  # so many files, the last, only show that this process exists; they stay open
    _LEASE.locks = files[: len(files) - presence_count]
    _LEASE.giver, _LEASE.gpus = giver, tuple(answer["gpus"])
    os.environ[GPUS_VARIABLE] = ",".join(_LEASE.gpus)
    return _LEASE.gpus


def check_leased(uuid: str | None) -> None:
    """Raises RuntimeError if this process works on a GPU, given by its UUID, that it did not lease: an import asked
    CUDA for its devices before there was a lease."""
    # indices and names of MIG instances cannot be compared with a UUID
    are_uuids = all(name.startswith("GPU-") for name in _LEASE.gpus)
    if uuid and _LEASE.gpus and are_uuids and uuid not in _LEASE.gpus:
        raise RuntimeError(
            f"this process works on {uuid}, and leased {', '.join(_LEASE.gpus)}: an import asked CUDA for its devices"
            f" before the lease; import it later, or set {GPUS_VARIABLE} to one GPU"
        )


def give_back_lease() -> None:
    """Lets others have the GPUs from now on; does nothing without a lease. This process must have freed its memory, and
    must not use the GPUs again. Its CUDA context remains until it ends; whoever needs all memory waits for that."""
    if _LEASE.giver is None:
        return
    while _LEASE.locks:
        os.close(_LEASE.locks.pop())
    with suppress(ConnectionError):  # the giver is gone
        _LEASE.giver.send(GIVEN_BACK)
    _LEASE.giver.close()
    _LEASE.giver = None
