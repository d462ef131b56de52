"""The window of one process: opened once, closed once, and noted with its cost.

It runs inside other people's programs, in the middle of their steps. So whatever fails here is noted, for the command
to print, and never raised.
"""

import atexit
import gc
import multiprocessing.util
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from kernel_recorder.in_process.handover import DROPPED, Notes, one_line_error
from kernel_recorder.in_process.module_ranges import WindowRanges
from kernel_recorder.in_process.profilers import NsysProfiler, TorchProfiler
from kernel_recorder.in_process.ranks import RankCoordinator

MAX_REASONS, MAX_REASON_CHARS = 3, 200
# After "[" or "tensor ", a quoted text is a name; else it may be any text of the program.
QUOTED_TEXT = re.compile(r"""(\[|tensor )?('[^']*'|"[^"]*")""")
WAITING, OPEN, OVER = "waiting", "open", "over"


@dataclass(frozen=True)
class Compilations:
    """The number of graphs that were compiled so far, and the reasons why a compiled one did not fit a call."""

    graphs: int = 0
    reasons: tuple[str, ...] = ()


def compilations() -> Compilations:
    """The compilations of this process; none if its TorchDynamo keeps no counts, or is not imported."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters, failures = getattr(utils, "counters", {}), getattr(utils, "guard_failures", {})
    reasons = [_shortened_reason(text) for texts in list(failures.values()) for text in texts]
    return Compilations(int(counters.get("stats", {}).get("unique_graphs", 0)), tuple(reasons))


def compilations_since(before: Compilations) -> dict[str, object]:
    """What was compiled since then, for the notes; empty if nothing was."""
    now = compilations()
    if now.graphs <= before.graphs:
        return {}
    new_reasons = Counter(now.reasons) - Counter(before.reasons)
    return {"compilations": now.graphs - before.graphs, "compilation_reasons": list(new_reasons)[:MAX_REASONS]}


def _shortened_reason(reason: str) -> str:
    """A reason such as "0/1: tensor 'x' size mismatch  # y = x  # train.py:12 in forward" without number, source and
    texts of the program."""
    text = reason.partition("\n")[0].partition("  # ")[0]
    number, separator, rest = text.partition(": ")
    text = rest if separator and "/" in number else text
    return QUOTED_TEXT.sub(lambda match: match[0] if match[1] else "'...'", text)[:MAX_REASON_CHARS]


class Recorder:
    """Opens and closes the window of this process. Only the first process of a program gets a window or, if it is a
    rank, all ranks of its run.

    `completed` counts the steps, or the instances of a range, in the window. The Window object sets `progress`, a
    function that returns facts for the notes.
    """

    def __init__(
        self, notes: Notes, ranks: RankCoordinator, profiler: TorchProfiler | NsysProfiler, ranges: WindowRanges
    ) -> None:
        self._notes, self._ranks, self._profiler, self.ranges = notes, ranks, profiler, ranges
        self.state = WAITING
        self.completed = 0
        self.progress: Callable[[], dict[str, Any]] = dict
        self._has_noted_profile = self._has_opened = False
        self._compilations_before = Compilations()

    @property
    def is_waiting(self) -> bool:
        return self.state == WAITING

    @property
    def is_open(self) -> bool:
        return self.state == OPEN

    @property
    def can_start_over(self) -> bool:
        """Whether this process opened a window, and another one can take its place."""
        return self._has_opened and self._profiler.can_start_again and not self._ranks.is_distributed

    def open(self, **facts: Any) -> bool:
        """Opens the window, and returns whether this call opened it. It stays closed for good if another process was
        first or the profiler refuses; for now, while the program uses PyTorch's profiler, or in a backward pass."""
        if not self.is_waiting or is_in_backward():
            return False
        if self._profiler.is_taken:
            self.note_profile()
            return False
        self.state = OVER
        is_beside_ranks = not self._ranks.is_distributed and self._ranks.has_other_ranks  # such as a launcher
        if is_beside_ranks or not self._notes.claim(self._ranks.run):
            self._notes.add("elsewhere")
            return False
        started_s = time.perf_counter()
        try:
            collect_due_garbage()
            self.ranges.begin()
            wait_for_device()
            self._profiler.start()
        except Exception as error:
            self.ranges.end()
            self._notes.add("refused", reason=one_line_error(error).removeprefix("RuntimeError: "))
            return False
        self.state = OPEN
        if not self._has_opened:
            self._end_with_forked_process()
        self._has_opened = True
        self._compilations_before = compilations()
        facts |= {"torch": torch.__version__, "has_steps": self.ranges.has_steps}
        self._notes.add("open", start_s=time.perf_counter() - started_s, **facts)
        return True

    def add_facts(self, **facts: Any) -> None:
        """Notes further facts about the steps of the open window."""
        self._notes.add("steps", **facts)

    def note_profile(self) -> None:
        """Notes, once, that the program uses PyTorch's profiler itself."""
        if not self._has_noted_profile:
            self._has_noted_profile = True
            self._notes.add("profile")

    def leave_profiler(self) -> None:
        """Leaves the profiler to the program, which is about to use it."""
        if self.is_open:
            self.close(profile=True)

    def close(self, *, program_ended: bool = False, **facts: Any) -> None:
        """Ends the window, and writes its content; not in a backward pass, unless the program ends there."""
        if not self.is_open or (is_in_backward() and not program_ended):
            return
        self.state = OVER
        started_s = time.perf_counter()
        with suppress(RuntimeError):  # the device may have failed
            wait_for_device()
        try:
            self.ranges.end()
            self._profiler.stop(program_ended=program_ended)
            stopped_s = time.perf_counter()
            if program_ended:
                error_type = getattr(sys, "last_type", None)  # of the uncaught error that ends this process
                facts |= {"ended": True, "error": error_type and error_type.__name__}
            facts["contents"] = self.ranges.facts() | compilations_since(self._compilations_before)
            self._notes.add("closed", done=self.completed, stop_s=stopped_s - started_s, **facts, **self.progress())
            self._profiler.save(self._notes.folder)
        except Exception as error:
            self._note_loss(error)
            return
        self._notes.add("saved", save_s=time.perf_counter() - stopped_s)

    def _note_loss(self, error: Exception) -> None:
        self._notes.add("lost", reason=one_line_error(error).removeprefix("RuntimeError: "))

    def start_over(self) -> None:
        """Drops what was recorded, and waits for another window."""
        if self.is_open:
            try:
                wait_for_device()
                self.ranges.end()
                self._profiler.stop(program_ended=False)
            except Exception as error:  # the program goes on without a recording
                self.state = OVER
                self._note_loss(error)
                return
        self._notes.add(DROPPED)
        self.state, self.completed = WAITING, 0

    def end_with_process(self) -> None:
        """Closes the window when this process ends, and leaves forked children without a window."""
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_forked_child)

    def _at_exit(self) -> None:
        """Closes a window in which the program ended, and notes how far this process came."""
        self.close(program_ended=True)
        self._notes.add("exit", **self.progress())

    def _end_with_forked_process(self) -> None:
        """Closes the window also at the end of a forked process, which does not call what atexit registered."""
        if multiprocessing.parent_process() is not None:
            multiprocessing.util.Finalize(None, self._at_exit, exitpriority=0)

    def _in_forked_child(self) -> None:
        """Ends the window in a child of the recorded process: the profiler belongs to its parent."""
        self._ranks.run = None  # the child is no rank
        if self.is_open:
            self.state = OVER


def is_in_backward() -> bool:
    """Whether autograd runs a backward pass on this thread. Meanwhile the thread has another state with another
    profiler: if a profiler is started or ended there, the process later ends with a SIGSEGV."""
    return torch._C._current_graph_task_id() != -1


def collect_due_garbage() -> None:
    """Collects all garbage now if Python may do so soon: after an import of PyTorch it takes 0.2 s, which would be in
    the first step, since recording creates objects, too."""
    if gc.isenabled() and gc.get_count()[2] >= gc.get_threshold()[2]:
        gc.collect()


def wait_for_device() -> None:
    """Waits for all launched work, so that the window contains the work launched in it."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()
