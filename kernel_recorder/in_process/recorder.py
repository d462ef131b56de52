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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from kernel_recorder.in_process.handover import DROPPED, Notes, in_a_line
from kernel_recorder.in_process.ranks import Ranks

MOST_REASONS, MOST_CHARACTERS = 3, 200
TEXT = re.compile(r"""(\[|tensor )?('[^']*'|"[^"]*")""")  # a name if something leads it, else any text of the program
WAITING, OPEN, OVER = "waiting", "open", "over"


@dataclass(frozen=True)
class Compilations:
    """So far: how many graphs were compiled, and the reasons why a compiled one did not fit a call."""

    graphs: int = 0
    reasons: tuple[str, ...] = ()


def compilations() -> Compilations:
    """The compilations of this process; none if its TorchDynamo keeps no counts, or is not imported."""
    utils = sys.modules.get("torch._dynamo.utils")
    counters, failures = getattr(utils, "counters", {}), getattr(utils, "guard_failures", {})
    reasons = [_without_place(text) for texts in list(failures.values()) for text in texts]
    return Compilations(int(counters.get("stats", {}).get("unique_graphs", 0)), tuple(reasons))


def compilations_since(before: Compilations) -> dict[str, object]:
    """What was compiled since then, for the notes; empty if nothing was."""
    now = compilations()
    if now.graphs <= before.graphs:
        return {}
    rest = list(now.reasons)
    for reason in before.reasons:
        if reason in rest:
            rest.remove(reason)
    reasons = list(dict.fromkeys(rest))[:MOST_REASONS]
    return {"compilations": now.graphs - before.graphs, "compilation_reasons": reasons}


def _without_place(reason: str) -> str:
    """A reason such as "0/1: tensor 'x' size mismatch  # y = x  # train.py:12 in forward" without number, source and
    texts of the program."""
    text = reason.partition("\n")[0].partition("  # ")[0]
    number, separator, rest = text.partition(": ")
    text = rest if separator and "/" in number else text
    return TEXT.sub(lambda match: match[0] if match[1] else "'...'", text)[:MOST_CHARACTERS]


class Recorder:
    """Opens and closes the window of this process, unless a process that is not a rank of its run has one."""

    def __init__(self, notes: Notes, ranks: Ranks, profiler: Any, parts: Any) -> None:
        self._notes, self._ranks, self._profiler, self.parts = notes, ranks, profiler, parts
        self.state = WAITING
        self.done = 0  # steps, or instances of a range, that the window holds so far
        self.progress: Callable[[], dict[str, Any]] = dict  # how far the search for the window came
        self._has_profile = self._has_opened = False
        self._compilations_before = Compilations()

    @property
    def waits(self) -> bool:
        return self.state == WAITING

    @property
    def is_open(self) -> bool:
        return self.state == OPEN

    @property
    def can_start_over(self) -> bool:
        """Whether another window can take the place of the one that this process opened."""
        return self._has_opened and self._profiler.can_start_again and not self._ranks.is_one

    def open(self, **facts: Any) -> bool:
        """Whether the window is open now. It is not where another process was first, or the profiler refuses; and not
        yet, while the program uses PyTorch's profiler itself, or in a backward pass."""
        if not self.waits or is_in_backward():
            return False
        if self._profiler.is_taken:
            self.note_profile()
            return False
        self.state = OVER
        if (not self._ranks.is_one and self._ranks.are_others) or not self._notes.claim(self._ranks.run):
            self._notes.add("elsewhere")
            return False
        started = time.perf_counter()
        try:
            collect_what_is_due()
            self.parts.begin()
            wait_for_device()
            self._profiler.start()
        except Exception as error:
            self.parts.end()
            self._notes.add("refused", reason=in_a_line(error).removeprefix("RuntimeError: "))
            return False
        self.state = OPEN
        if not self._has_opened:
            self._end_with_forked_process()
        self._has_opened = True
        self._compilations_before = compilations()
        facts |= {"torch": torch.__version__, "has_steps": self.parts.has_steps}
        self._notes.add("open", start_s=time.perf_counter() - started, **facts)
        return True

    def add_facts(self, **facts: Any) -> None:
        """Notes further facts about the steps of the open window."""
        self._notes.add("steps", **facts)

    def note_profile(self) -> None:
        """Notes, once, that the program uses PyTorch's profiler itself."""
        if not self._has_profile:
            self._has_profile = True
            self._notes.add("profile")

    def step_back(self) -> None:
        """Leaves the profiler to the program, which is about to use it."""
        if self.is_open:
            self.close(profile=True)

    def close(self, *, program_ended: bool = False, **facts: Any) -> None:
        """Ends the window, and writes its content; not in a backward pass, unless the program ends there."""
        if not self.is_open or (is_in_backward() and not program_ended):
            return
        self.state = OVER
        started = time.perf_counter()
        with suppress(RuntimeError):  # a device that has failed is waited for in vain
            wait_for_device()
        try:
            self.parts.end()
            self._profiler.stop(program_ended=program_ended)
            stopped = time.perf_counter()
            if program_ended:
                facts |= {"ended": True, "error": _uncaught()}
            facts["contents"] = self.parts.facts() | compilations_since(self._compilations_before)
            self._notes.add("closed", done=self.done, stop_s=stopped - started, **facts, **self.progress())
            self._profiler.save(self._notes.folder)
        except Exception as error:
            self._notes.add("lost", reason=in_a_line(error).removeprefix("RuntimeError: "))
            return
        self._notes.add("saved", save_s=time.perf_counter() - stopped)

    def start_over(self) -> None:
        """Drops what was recorded, and waits for another window."""
        if self.is_open:
            wait_for_device()
            self.parts.end()
            self._profiler.stop(program_ended=False)
        self._notes.add(DROPPED)
        self.state, self.done = WAITING, 0

    def end_with_process(self) -> None:
        """Closes the window when this process ends, and leaves forked children without a window."""
        atexit.register(self._at_exit)
        os.register_at_fork(after_in_child=self._in_forked_child)

    def _at_exit(self) -> None:
        """Closes a window in which the program ended, and notes how far this process came."""
        self.close(program_ended=True)
        self._notes.add("exit", **self.progress())

    def _end_with_forked_process(self) -> None:
        """A process that multiprocessing forked ends without what atexit registered."""
        if multiprocessing.parent_process() is not None:
            multiprocessing.util.Finalize(None, self._at_exit, exitpriority=0)

    def _in_forked_child(self) -> None:
        """A child of the recorded process is not recorded: the profiler belongs to its parent."""
        self._ranks.forget()
        if self.is_open:
            self.state = OVER


def is_in_backward() -> bool:
    """Whether autograd runs a backward pass on this thread. It gives the thread another state meanwhile, and with it
    another profiler: one that is started or ended in it is not afterwards, and the process ends with a SIGSEGV."""
    return torch._C._current_graph_task_id() != -1


def collect_what_is_due() -> None:
    """Collects all garbage now if Python may do so soon: it takes 0.2 s after an import of PyTorch, and would come in
    the first step, since recording makes objects too."""
    if gc.isenabled() and gc.get_count()[2] >= gc.get_threshold()[2]:
        gc.collect()


def wait_for_device() -> None:
    """Waits for all launched work, so that the window contains the work launched in it."""
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def _uncaught() -> str | None:
    """The name of the uncaught error that ends this process, None without one."""
    error = getattr(sys, "last_type", None)
    return error and error.__name__
