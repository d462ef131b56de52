"""A program's lease of its GPUs: asked for when everything is imported, held until the process has ended.

Whoever starts the program listens on a UNIX socket and answers, when the GPUs are free, with their names and the files
whose locks lease them (SCM_RIGHTS, unix(7)). This process keeps the files open, so that the GPUs stay leased while it
lives, even where the one that gave the lease is killed. Imports no torch.
"""

import json
import os
import socket
from pathlib import Path

MESSAGE_BYTES, MOST_FILES = 65536, 64
GPUS_VARIABLE = "CUDA_VISIBLE_DEVICES"

_locks: list[int] = []


def take_lease(address: Path | None) -> tuple[str, ...]:
    """Waits for the GPUs, and makes them the only ones that CUDA shows to this process; () where there is no address.

    Call it before anything asks CUDA for its devices: the driver reads the variable once. Raises ConnectionError where
    whoever gives the leases is gone or refuses: it says why.
    """
    if address is None:
        return ()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(str(address))
        message, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, MOST_FILES)
    if not message:
        raise ConnectionError("no lease of a GPU was given; the process that started this one says why")
    for file in files:
        os.set_inheritable(file, False)
    _locks.extend(files)
    gpus = tuple(json.loads(message))
    os.environ[GPUS_VARIABLE] = ",".join(gpus)
    return gpus
