"""The recorder of one process: opens the window once, and closes it once.

It runs inside other people's programs, in the middle of their steps. So whatever fails here is noted, for the command
to print, and never raised.
"""

import gc
import multiprocessing.util
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

from kernel_tables.marks.marker import is_in_backward
from kernel_tables.record.handover import Notes, one_line_error
from kernel_tables.record.profilers import NsysProfiler, Ranks, TorchProfiler
from kernel_tables.record.ranges import AddedRanges
from kernel_tables.record.timer import Timer


class Recorder:
    """Opens and closes the window of this process. Only the first process of a program gets a window or, if it is a
    rank, all ranks of its run. `completed` counts the steps, or the instances of a range, in the window;
    `progress` is that of its Window, a function that returns facts for the notes."""

    def __init__(
        self, notes: Notes, ranks: Ranks, profiler: TorchProfiler | NsysProfiler | Timer, ranges: AddedRanges
    ) -> None:
        self.notes, self._ranks, self.profiler, self.ranges = notes, ranks, profiler, ranges
        self.is_waiting, self.is_open = True, False  # neither once the window is over
        self.completed = 0
        self.progress: Callable[[], dict[str, Any]] = lambda: {"repeated": []}
        self._has_noted_profile = False
        self._compiled_before = 0

    def open(self, **facts: Any) -> None:
        """Opens the window. It stays closed for good if another process was first or the profiler refuses; for now,
        while the program uses PyTorch's profiler, or in a backward pass: if a profiler is started or ended there, where
        the thread has another state, the process later ends with a SIGSEGV."""
        if not self.is_waiting or is_in_backward():
            return
        if self.profiler.is_taken:
            self.note_profile()
            return
        self.is_waiting = False
        self._ranks.find()
        if not self.notes.claim("window", self._ranks.run):
            self.notes.add("elsewhere")
            return
        try:
            # All garbage, if Python may collect it soon: after an import of PyTorch it takes 0.2 s, which would be in
            # the first step, since recording creates objects, too. A timed program's garbage is its own.
            is_timed = isinstance(self.profiler, Timer)
            if not is_timed and gc.isenabled() and gc.get_count()[2] >= gc.get_threshold()[2]:
                gc.collect()
            self.ranges.begin()
            wait_for_device()
            self.profiler.start()
        except Exception as error:
            self.ranges.end()
            self.notes.add("refused", reason=one_line_error(error))
            return
        self.is_open = True
        if multiprocessing.parent_process() is not None:
            # a forked process does not call what atexit registered
            multiprocessing.util.Finalize(None, self.end, exitpriority=0)
        self._compiled_before = count_compiled()
        self.notes.add("open", torch=torch.__version__, has_steps=self.ranges.has_steps, **facts)
        if is_timed:
            self.profiler.start_clock()

    def note_profile(self) -> None:
        """Notes, once, that the program uses PyTorch's profiler itself."""
        if not self._has_noted_profile:
            self._has_noted_profile = True
            self.notes.add("profile")

    def close(self, *, by_profile: bool = False, at_exit: bool = False) -> None:
        """Ends the window, and writes its content; not in a backward pass, unless the program ends there. `by_profile`:
        the program is about to start PyTorch's profiler."""
        if not self.is_open or (is_in_backward() and not at_exit):
            return
        self.is_open, facts = False, {}
        if at_exit:
            error_type = getattr(sys, "last_type", None)  # of the uncaught error that ends this process
            facts["cut_by"] = f"the program ended{f' ({error_type.__name__})' if error_type else ''}"
        elif by_profile:
            facts["cut_by"] = "the program started PyTorch's profiler itself"
        if compiled := count_compiled() - self._compiled_before:
            facts["compilations"] = compiled
        try:
            with suppress(RuntimeError):  # the device may have failed
                wait_for_device()
            self.ranges.end()
            self.profiler.stop(at_exit=at_exit)
            self.notes.add("closed", done=self.completed, **facts, **self.progress())
            self.profiler.save(self.notes.folder)
            self.notes.add("saved")
            if isinstance(self.profiler, Timer) and not at_exit:
                time.sleep(30)  # the command ends this process meanwhile, before it writes what it has learnt
        except Exception as error:
            self.notes.add("lost", reason=one_line_error(error))

    def end(self) -> None:
        """At the end of this process: closes a window in which it ended, and notes how far it came."""
        self.close(at_exit=True)
        self.notes.add("exit", **self.progress())

    def leave(self) -> None:
        """In a forked child of the recorded process: the profiler belongs to its parent, and it is no rank yet."""
        self.is_open = False
        self._ranks.forget()


def is_capturing() -> bool:
    """Whether this thread captures a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def wait_for_device() -> None:
    """Waits for all launched work, so that the window contains the work launched in it."""
    if torch.cuda.is_initialized() and not is_capturing():
        torch.cuda.synchronize()


def count_compiled() -> int:
    """The graphs that torch.compile has compiled in this process; 0 if TorchDynamo keeps no count, or is not there."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return counters.get("stats", {}).get("unique_graphs", 0)
