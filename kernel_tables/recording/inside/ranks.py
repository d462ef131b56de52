"""The ranks of a program that runs on several GPUs: which process is one, and where they wait for each other.

nsys has one window for all processes of its session. Where it begins while a rank is in the middle of a step, of that
step kernels are lost; where it ends while a kernel of NCCL waits for another rank, the rank that ended it is held up
until nsys has waited for the other in vain, for 30 s (nsys 2025.3, two ranks). So ranks meet at both ends. In the
processes that did not ask for it the window begins up to 3 ms later (seen), so all wait SETTLED_S then.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import torch.distributed

from kernel_tables.recording.inside.notes import RANK, Notes, read_notes

JOINING = ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh")
PATIENCE_S = 10.0  # for ranks that do not come: their program may do something else, or have ended
DOING_S = 60.0  # for what the first to come does for all
SETTLED_S = 0.1
POLL_S = 0.002


class Ranks:
    """Whether this process is a rank, once it has joined the others by `init_process_group`."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.number: int | None = None

    @property
    def is_one(self) -> bool:
        """Whether this process is one of several."""
        return self.number is not None

    def watch(self) -> None:
        """Notes this process's rank as soon as it has one."""
        if not torch.distributed.is_available():
            return
        plain = torch.distributed.init_process_group

        @wraps(plain)
        def joined(*args: Any, **kwargs: Any) -> Any:
            done = plain(*args, **kwargs)
            self._note()
            return done

        for name in JOINING:
            module = sys.modules.get(name)
            if getattr(module, plain.__name__, None) is plain:
                setattr(module, plain.__name__, joined)

    def together(self, what: str, call: Callable[[], Any]) -> None:
        """Calls once all ranks have come to WHAT: one of them does, and all go on when it is done. Ranks that have
        ended are not waited for, and others for PATIENCE_S at most. A process that is no rank just calls."""
        if not self.is_one:
            call()
            return
        folder = self._notes.folder
        (folder / f"{what}-{os.getpid()}").touch()
        if self._notes.first_to(what):
            _wait(PATIENCE_S, lambda: all((folder / f"{what}-{pid}").exists() for pid in self._alive()))
            try:
                call()
            finally:
                (folder / f"{what}-done").touch()
        else:
            _wait(PATIENCE_S + DOING_S, lambda: (folder / f"{what}-done").exists())
        time.sleep(SETTLED_S)

    def _note(self) -> None:
        with suppress(RuntimeError, ValueError):  # a group that does not hold this process
            if torch.distributed.get_world_size() > 1:
                self.number = torch.distributed.get_rank()
                self._notes.add(RANK, number=self.number, of=torch.distributed.get_world_size())

    def _alive(self) -> set[int]:
        """The processes of the ranks that were started here and have not ended."""
        notes = read_notes(self._notes.folder)
        ended = {note["pid"] for note in notes if note["event"] == "exit"}
        return {pid for pid in {note["pid"] for note in notes if note["event"] == RANK} - ended if _is_alive(pid)}


def _wait(patience_s: float, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience_s
    while not until() and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True
