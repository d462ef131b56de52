"""The ranks of a program on several GPUs: which processes are ranks, and where they wait for each other.

nsys has one window for all processes of its session. If it opens while a rank is in the middle of a step, kernels of
that step are lost. If it closes while a kernel of NCCL waits for another rank, nsys blocks the rank that closed it for
30 s (nsys 2025.3, two ranks). So ranks meet at both ends. In the other processes the window opens up to 3 ms later
(measured), so all ranks then wait for SETTLING_S. They know of each other by their notes,
and meet by files in the folder of the notes (handover.py).
"""

import os
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch.distributed

from kernel_recorder.in_process.callbacks import with_callbacks
from kernel_recorder.in_process.handover import NO_RANK, RANK, RANK_WAIT_S, Notes, is_alive, one_line_error, read_notes

# Modules that have a name `init_process_group`, the function by which a process joins others.
JOINING_MODULES = ("torch.distributed", "torch.distributed.distributed_c10d", "torch.distributed.device_mesh")
RUN_KEY = "kernel_tables_run"  # in the store that all ranks of a run share
CALL_TIMEOUT_S = 60.0  # for the call in `call_once`
SETTLING_S = 0.1
POLL_S = 0.002


class RankCoordinator:
    """Knows whether this process is a rank, and lets ranks wait for each other. `run` is an id that the ranks share
    which joined each other by `init_process_group`; None before that, and without other ranks."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self.run: str | None = None

    @property
    def is_distributed(self) -> bool:
        """Whether this process is one of several ranks."""
        return self.run is not None

    @property
    def has_other_ranks(self) -> bool:
        """Whether other processes of the program are ranks, of any run; this one may be only a launcher."""
        return any(pid != os.getpid() for pid in self._live_ranks())

    def watch(self) -> None:
        """Notes this process's rank as soon as it has joined others."""
        if not torch.distributed.is_available():
            return
        original = torch.distributed.init_process_group
        watched = with_callbacks(original, after=self._note_rank)
        for name in JOINING_MODULES:
            module = sys.modules.get(name)
            if getattr(module, original.__name__, None) is original:
                setattr(module, original.__name__, watched)

    def join(self, run: str, number: int, world_size: int) -> None:
        """Notes that this process is the rank with this number."""
        self.run = run
        self._notes.add(RANK, run=run, number=number, of=world_size)

    def call_once(self, point: str, call: Callable[[], Any]) -> None:
        """A barrier: when all live ranks of this run have reached `point`, or after RANK_WAIT_S, one of them makes
        the call; if it dies, another one does. All return once it is done. A process that is not a rank just calls."""
        if not self.is_distributed:
            call()
            return
        folder = self._notes.folder
        (folder / f"{point}-{os.getpid()}").touch()
        done_file = folder / f"{point}-done"
        deadline = time.monotonic() + RANK_WAIT_S + CALL_TIMEOUT_S
        attempt = 0
        while not done_file.exists() and time.monotonic() < deadline:
            caller = self._notes.first_process_to(f"{point}-{attempt}-acts")  # None: it has not written its id yet
            if caller == os.getpid():
                self._wait_for_all(point)
                try:
                    call()
                finally:
                    done_file.touch()
            elif caller is None or is_alive(caller):
                time.sleep(POLL_S)
            else:
                attempt += 1  # the caller has died
        time.sleep(SETTLING_S)

    def _wait_for_all(self, point: str) -> None:
        deadline = time.monotonic() + RANK_WAIT_S
        while time.monotonic() < deadline:
            if all((self._notes.folder / f"{point}-{pid}").exists() for pid in self._live_ranks(self.run)):
                return
            time.sleep(POLL_S)

    def _note_rank(self, *_: Any) -> None:
        """Notes this process's rank if there are several. Errors are noted, and never raised in the program."""
        self.run = None
        try:
            world_size = torch.distributed.get_world_size()
            if world_size > 1:
                store = torch.distributed.distributed_c10d._get_default_store()
                run = store.compare_set(RUN_KEY, "", uuid.uuid4().hex)  # every rank gets the first one's id
                self.join(run.decode(), torch.distributed.get_rank(), world_size)
        except Exception as error:
            self._notes.add(NO_RANK, reason=one_line_error(error))

    def _live_ranks(self, run: str | None = None) -> set[int]:
        """The ids of the running processes of the ranks of this run (default: of any run)."""
        notes = read_notes(self._notes.folder)
        ended = {note["pid"] for note in notes if note["event"] == "exit"}
        rank_notes = [note for note in notes if note["event"] == RANK]
        ranks = {note["pid"] for note in rank_notes if run is None or note["run"] == run}
        return {pid for pid in ranks - ended if is_alive(pid)}
