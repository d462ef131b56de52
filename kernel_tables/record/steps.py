"""What opens and closes the window: instances of a range, or steps. A step is one of an optimizer, a replay of a CUDA
graph, or a call of a model."""

import atexit
import multiprocessing
import os
import statistics
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from kernel_tables.marks import when_imported
from kernel_tables.marks.marker import is_in_backward
from kernel_tables.marks.modules import ModuleParts, model_name
from kernel_tables.record import handover
from kernel_tables.record.handover import Notes, Settings
from kernel_tables.record.profilers import NsysProfiler, Ranks, TorchProfiler, with_callbacks
from kernel_tables.record.ranges import AddedRanges, ProgramRanges, follow_compilation
from kernel_tables.record.recorder import Recorder, is_capturing
from kernel_tables.record.timer import ModelCalls, Timer


class Window:
    """The base of both windows, which hear of ranges before they open and after they have closed. A program that opened
    ranges itself before the window gets none with AUTO. Their `progress` gives facts for the notes: what this process
    `repeated`, by kind, name and count."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        self.recorder, self.settings = recorder, settings

    def before_range(self, name: str, *, of_torch: bool) -> None:
        """A range is about to open, with `of_torch` one that PyTorch opens itself."""
        if self.settings.added_ranges == handover.AUTO and self.recorder.is_waiting:
            self.recorder.ranges.has_modules &= of_torch
            self.recorder.ranges.has_steps &= name != handover.STEP


class RangeWindow(Window):
    """Opens after a number of instances of a named range; instances inside another one do not count."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        super().__init__(recorder, settings)
        self._instances = 0
        self._depth = threading.local()  # of open instances on a thread, as `value`

    def before_range(self, name: str, *, of_torch: bool) -> None:
        super().before_range(name, of_torch=of_torch)
        if name != self.settings.range:
            return
        self._depth.value = getattr(self._depth, "value", 0) + 1
        if self._depth.value == 1 and self.recorder.is_waiting:
            self._instances += 1
            if self._instances > self.settings.skip:
                self.recorder.open(first=self._instances, by=handover.RANGE, name=f"range '{name}'")

    def after_range(self, name: str, optimizer: Any = None) -> None:
        if name != self.settings.range or not getattr(self._depth, "value", 0):
            return
        self._depth.value -= 1
        if self._depth.value == 0 and self.recorder.is_open:
            self.recorder.completed += 1
            if self.recorder.completed >= self.settings.steps:
                self.recorder.close()

    def progress(self) -> dict[str, Any]:
        return {"repeated": [[handover.RANGE, f"range '{self.settings.range}'", self._instances]]}


@dataclass(eq=False)
class RepeatedAction:
    """What an object of the program does again and again."""

    kind: str  # OPTIMIZER, GRAPH or MODULE
    name: str  # of the object
    count: int = 0
    ends_s: list[float] = field(default_factory=list)  # when steps ended before the window opened


class StepsWindow(Window):
    """Counts the actions of each optimizer, each CUDA graph and each model separately. The first that is repeated often
    enough opens the window and defines what a step is.

    A step lasts from the end of one optimizer step or replay to the end of the next, or from the start of one call of a
    model to the start of the next. An optimizer step ends when the range closes that PyTorch opens around it, so that
    no range is half in the window. Not counted are steps of a compiled optimizer, which runs no Python that calls back,
    and steps in a backward pass, where hooks may call an optimizer for each weight and no window can open. Each step of
    an optimizer resets the counts of replays, since a graph may contain only a part of a step. Calls of modules with
    parameters count until the program creates an optimizer, with the setting CALLS, or if they opened the window.

    A replay runs no Python: its kernels belong to the ranges that are open while the graph is captured. So the window
    opens before the first capture, unless there are `calls`: then it has no ranges, and is only timed.
    """

    def __init__(self, recorder: Recorder, settings: Settings, calls: ModelCalls | None = None) -> None:
        super().__init__(recorder, settings)
        self._actions: dict[tuple[str, int], RepeatedAction] = {}  # by kind and id of the object
        self._step_action: RepeatedAction | None = None  # defines what a step is
        self._has_optimizer = False
        self._calling_thread: int | None = None  # the one that made the first call
        self._calls = calls or ModuleParts(nullcontext, lambda module: None, self._before_call)
        if calls:
            calls.before, calls.after = self._before_call, self._after_call
            calls.is_training = lambda: self._has_optimizer
        self._calls.begin()
        if settings.window != handover.CALLS:
            graph = torch.cuda.graphs.CUDAGraph
            graph.replay = with_callbacks(graph.replay, after=self._after_replay)
            if not calls:
                graph.capture_begin = with_callbacks(graph.capture_begin, before=self._before_capture)
            Optimizer.__init__ = with_callbacks(Optimizer.__init__, after=self._after_new_optimizer)

    def after_range(self, name: str, optimizer: Any = None) -> None:
        """Counts the step of the optimizer, if the range was around one."""
        if optimizer is None or self.settings.window == handover.CALLS or is_capturing() or is_in_backward():
            return
        self._drop_other_counts()
        self._count(handover.OPTIMIZER, optimizer, type(optimizer).__name__)

    def progress(self) -> dict[str, Any]:
        facts: dict[str, Any] = {"repeated": [[one.kind, one.name, one.count] for one in self._actions.values()][:20]}
        if self._step_action is not None and len(self._step_action.ends_s) > 1:
            ends_s = self._step_action.ends_s[-21:]
            facts["step_before_s"] = statistics.median(later_s - earlier_s for earlier_s, later_s in pairwise(ends_s))
        return facts

    def _after_new_optimizer(self, *_: Any) -> None:
        self._has_optimizer = True

    def _drop_other_counts(self) -> None:
        """Drops the counts of replays and calls, and stops watching calls, unless they define a step."""
        if self._step_action is None or self._step_action.kind != handover.MODULE:
            self._calls.end()
        for key, action in list(self._actions.items()):
            if action.kind != handover.OPTIMIZER and action is not self._step_action:
                del self._actions[key]

    def _before_capture(self, *_: Any) -> None:
        if not is_capturing():
            self.recorder.open()

    def _after_replay(self, graph: Any) -> None:
        if not is_capturing():
            self._count(handover.GRAPH, graph, "a CUDA graph")

    def _before_call(self, module: nn.Module) -> AbstractContextManager:
        """Counts an outermost call of a module on the thread that made the first."""
        self._calling_thread = self._calling_thread or threading.get_ident()
        if self._calling_thread == threading.get_ident():
            self._count_call(module)
        return nullcontext()

    def _after_call(self, output: Any) -> None:
        """Keeps the output of the last call in a window of calls that is timed."""
        recorder, action = self.recorder, self._step_action
        is_last = recorder.is_open and recorder.completed == self.settings.steps - 1
        if is_last and action is not None and action.kind == handover.MODULE:
            recorder.profiler.keep_output(output)

    def _count_call(self, module: nn.Module) -> None:
        was_waiting = self.recorder.is_waiting
        if not (was_waiting or self.recorder.is_open):  # the window is over
            self._calls.end()
        if is_capturing() or next(module.parameters(), None) is None:
            return
        # With CALLS, optimizers are not watched, so there seem to be none.
        if not self._has_optimizer or (self._step_action is not None and self._step_action.kind == handover.MODULE):
            self._count(handover.MODULE, module, model_name(module))
        if was_waiting and self.recorder.is_open:  # the window opened in this call, so its range is not open yet
            self.recorder.ranges.call_begins(module)

    def _count(self, kind: str, actor: Any, name: str) -> None:
        """Counts an action of the object `actor` with this name. With a call of a model, a step is about to begin;
        otherwise one has ended."""
        recorder, action = self.recorder, self._actions.setdefault((kind, id(actor)), RepeatedAction(kind, name))
        action.count += 1
        if recorder.is_waiting:
            action.ends_s.append(time.perf_counter())
        if recorder.is_open and action is self._step_action:
            recorder.completed += 1
            recorder.ranges.step_ends()
            if recorder.completed == self.settings.steps:
                self._calls.end()
                recorder.close()
            else:
                recorder.ranges.step_begins()
        # a window that is open without a step has opened for the capture of a CUDA graph
        elif self._step_action is None and (recorder.is_waiting or recorder.is_open):
            completed = action.count - 1 if action.kind == handover.MODULE else action.count  # a call is about to begin
            if completed >= self.settings.skip:
                self._begin_window(action, first=completed + 1, by=kind, name=name)

    def _begin_window(self, action: RepeatedAction, **facts: Any) -> None:
        """Opens the window, if it can open, and begins its first step."""
        if self.recorder.is_open:  # since the capture of a CUDA graph
            self.recorder.notes.add("steps", **facts)
        else:
            self.recorder.open(**facts)
        if self.recorder.is_open:
            self._step_action = action
            self.recorder.ranges.step_begins()
        elif not self.recorder.is_waiting:  # it never opens; else it may open at a later step
            self._calls.end()


def watch_for_window(settings: Settings, notes: Notes) -> None:
    """Sets the hooks that record the window of this process. Raises RuntimeError if nsys cannot record this PyTorch."""
    to_nvtx, has_ranges = settings.profiler == handover.NSYS, settings.added_ranges != handover.NONE
    if to_nvtx and not torch.backends.cuda.is_built():
        raise RuntimeError("this PyTorch is built without CUDA, so nsys has nothing to record of it")
    if has_ranges:
        follow_compilation(in_torch_profile=not to_nvtx)
    ranks, calls = Ranks(notes), None
    if settings.profiler == handover.TIMER:
        from kernel_tables.record.remedies import Remedies

        # a process that is killed leaves the sockets of its DataLoaders, here in a folder that goes
        multiprocessing.current_process()._config["tempdir"] = str(notes.folder)
        remedies = Remedies(settings.remedies, notes)
        profiler, calls = Timer(notes, remedies.check), ModelCalls(remedies.improve)
    else:
        profiler = NsysProfiler(ranks) if to_nvtx else TorchProfiler()
    added_ranges = AddedRanges(has_modules=has_ranges, has_steps=has_ranges, to_nvtx=to_nvtx)
    recorder = Recorder(notes, ranks, profiler, added_ranges)
    if settings.window == handover.RANGE:
        window = RangeWindow(recorder, settings)
        if calls:
            calls.begin()
    else:
        window = StepsWindow(recorder, settings, calls)
    recorder.progress = window.progress
    ranges = ProgramRanges(
        to_nvtx=to_nvtx, is_recording=lambda: recorder.is_open and not calls, before=window.before_range,
        after=window.after_range,
    )  # fmt: skip
    ranges.watch_torch()
    when_imported("nvtx", ranges.watch_nvtx)
    # nsys records on while the program profiles itself; PyTorch's profiler is left to the program.
    profiler.watch_program(recorder.note_profile if to_nvtx else partial(recorder.close, by_profile=True))
    atexit.register(recorder.end)
    os.register_at_fork(after_in_child=recorder.leave)
