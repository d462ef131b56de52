"""The ranks of a program on several GPUs: which processes are ranks, and where they wait for each other.

nsys has one window for all processes of its session. If it opens while a rank is in the middle of a step, kernels of
that step are lost. If it closes while a kernel of NCCL waits for another rank, nsys blocks the rank that closed it for
30 s (nsys 2025.3, two ranks). So ranks meet at both ends. In the other processes the window opens up to 3 ms later
(measured), so all ranks then wait for SETTLED_S.
"""

import os
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch.distributed

from kernel_recorder.in_process.handover import NO_RANK, PATIENCE_S, RANK, Notes, in_a_line, is_alive, read_notes
from kernel_recorder.in_process.heard_calls import heard

JOINING = ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh")
RUN_KEY = "kernel_tables_run"  # in the store that all ranks of a run share
DOING_S = 60.0  # for what one rank does for all
SETTLED_S = 0.1
POLL_S = 0.002


class Ranks:
    """Whether this process is a rank, once it has joined the others by `init_process_group`, and of which run."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.run: str | None = None

    @property
    def is_one(self) -> bool:
        """Whether this process is one of several."""
        return self.run is not None

    @property
    def are_others(self) -> bool:
        """Whether other processes of this program are ranks."""
        return any(pid != os.getpid() for pid in self._alive())

    def watch(self) -> None:
        """Notes this process's rank as soon as it has one."""
        if not torch.distributed.is_available():
            return
        plain = torch.distributed.init_process_group
        joined = heard(plain, after=self._note)
        for name in JOINING:
            module = sys.modules.get(name)
            if getattr(module, plain.__name__, None) is plain:
                setattr(module, plain.__name__, joined)

    def forget(self) -> None:
        """Makes this process no rank, as in a forked child of a rank."""
        self.run = None

    def join(self, run: str, number: int, of: int) -> None:
        """Notes that this process is the rank with this number."""
        self.run = run
        self._notes.add(RANK, run=run, number=number, of=of)

    def together(self, what: str, call: Callable[[], Any]) -> None:
        """A barrier: when all live ranks of this run have reached `what`, or after PATIENCE_S, one of them makes the
        call; if it dies, another one does. All return when it is done. A process that is not a rank just calls."""
        if not self.is_one:
            call()
            return
        folder = self._notes.folder
        (folder / f"{what}-{os.getpid()}").touch()
        done = folder / f"{what}-done"
        deadline = time.monotonic() + PATIENCE_S + DOING_S
        attempt = 0
        while not done.exists() and time.monotonic() < deadline:
            acting = self._notes.first_to(f"{what}-{attempt}-acts")
            if acting == os.getpid():
                self._wait_for_all(what)
                try:
                    call()
                finally:
                    done.touch()
            elif acting is None or is_alive(acting):
                time.sleep(POLL_S)
            else:
                attempt += 1
        time.sleep(SETTLED_S)

    def _wait_for_all(self, what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if all((self._notes.folder / f"{what}-{pid}").exists() for pid in self._alive(self.run)):
                return
            time.sleep(POLL_S)

    def _note(self, *_: Any) -> None:
        """Notes this process's rank. Errors are noted, and never raised in the program."""
        self.forget()
        try:
            of = torch.distributed.get_world_size()
            if of > 1:
                store = torch.distributed.distributed_c10d._get_default_store()
                run = store.compare_set(RUN_KEY, "", uuid.uuid4().hex)  # the first rank's, on all of them
                self.join(run.decode(), torch.distributed.get_rank(), of)
        except Exception as error:
            self._notes.add(NO_RANK, reason=in_a_line(error))

    def _alive(self, run: str | None = None) -> set[int]:
        """The running processes of the ranks of this run (default: of any run)."""
        notes = read_notes(self._notes.folder)
        ended = {note["pid"] for note in notes if note["event"] == "exit"}
        ranks = {note["pid"] for note in notes if note["event"] == RANK and run in (None, note["run"])}
        return {pid for pid in ranks - ended if is_alive(pid)}
