"""Starts the processes of a run, one for each rank, and ends with the first of them that fails.

    python -m cs336_model.program.parallel.launch --folder FOLDER '[["python", ...], ["python", ...]]'

Each rank gets its number in the variables of torchrun, and prints into FOLDER/rankN.log. FOLDER/first_to_fail has the
number of the first rank that failed, or that wrote why it has no times; later errors of other ranks only say that they
lost a peer. torchrun itself would import PyTorch, and mix the output. When this process ends, even by SIGKILL, so do
the ranks; its caller ends their descendants. Imports no torch.
"""

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue

RANK, LOCAL_RANK, WORLD_SIZE, STORE = "RANK", "LOCAL_RANK", "WORLD_SIZE", "RANKS_STORE"
RESULT_WITHOUT_TIMES = 75  # exit status of a rank that wrote why it has no times: the others would wait forever
FIRST_TO_FAIL = "first_to_fail"
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
C_LIBRARY = ctypes.CDLL(None)  # before fork: between fork and exec, another thread may hold a lock of the loader


def main(arguments: list[str] | None = None) -> int:
    """Runs the commands until all have ended, or one has failed. Returns the exit status of the failed one (128 + the
    signal, if a signal ended it); 0 if none has failed, or if the first to fail only wrote why it has no times."""
    parser = argparse.ArgumentParser(prog="python -m cs336_model.program.parallel.launch")
    parser.add_argument("--folder", type=Path, required=True, help="empty folder for logs and the store of the ranks")
    parser.add_argument("commands", type=json.loads, help="JSON list of the command of every rank")
    options = parser.parse_args(arguments)
    exits: SimpleQueue[tuple[int, int]] = SimpleQueue()  # (rank, exit status)

    def wait_for(rank: int, process: subprocess.Popen) -> None:
        exits.put((rank, process.wait()))

    for rank, command in enumerate(options.commands):
        process = start_rank(rank, command, len(options.commands), options.folder)
        threading.Thread(target=wait_for, args=(rank, process), daemon=True).start()
    for _ in options.commands:
        rank, status = exits.get()
        if status:
            Path(options.folder, FIRST_TO_FAIL).write_text(str(rank))
            if status == RESULT_WITHOUT_TIMES:
                return 0
            return status if status > 0 else 128 - status  # Popen's status is -signal
    return 0


def start_rank(rank: int, command: Sequence[str], count: int, folder: Path) -> subprocess.Popen:
    """Starts the process of one rank."""
    variables = {RANK: str(rank), LOCAL_RANK: str(rank), WORLD_SIZE: str(count), STORE: str(folder / "store")}
    with (folder / f"rank{rank}.log").open("ab") as log:
        return subprocess.Popen(
            command,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=partial(_die_with, os.getpid()),
        )


def _die_with(launcher: int) -> None:
    """Makes the kernel end this process with the launcher's main thread. Called in the process of a rank, before it
    runs the rank's command."""
    C_LIBRARY.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != launcher:  # the launcher has ended already
        os._exit(128 + signal.SIGKILL)


if __name__ == "__main__":
    sys.stdout.flush()
    os._exit(main())  # threads still wait for the other ranks
