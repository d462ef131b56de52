"""A window with a number of steps: steps of an optimizer, replays of a CUDA graph, or calls of a model.

Steps of optimizers that run no Python, as those of compiled ones, are known by the weights that they change.
"""

import statistics
import time
import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from kernel_recorder.in_process.handover import CALLS, Settings
from kernel_recorder.in_process.heard_calls import heard
from kernel_recorder.in_process.recorder import Recorder, is_in_backward
from kernel_recorder.in_process.windows import OutermostCalls, Window
from range_marks.module_parts import model_name

NOTED_STEPS = 20  # steps before the window whose durations are kept
# What is repeated: steps of an optimizer, changes of weights by one whose steps are not heard, replays, calls.
OPTIMIZER, WEIGHTS, GRAPH, MODULE = "optimizer", "weights", "graph", "module"
MOST_REPEATED = 20  # are noted


class StepClock:
    """The durations of steps before the window, and in it."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._before_s: list[float] = []
        self._within_s: list[float] | None = None

    def tick(self) -> None:
        """A step has ended."""
        now_s = time.perf_counter()
        if self._last_s is not None:
            (self._before_s if self._within_s is None else self._within_s).append(now_s - self._last_s)
            del self._before_s[:-NOTED_STEPS]
        self._last_s = now_s

    def restart(self) -> None:
        """The window is open: what its opening took belongs to no step."""
        self._last_s, self._within_s = time.perf_counter(), []

    def facts(self) -> dict[str, float]:
        """The median of each that has one, in seconds."""
        medians = {"step_before_s": self._before_s, "step_within_s": self._within_s}
        return {name: statistics.median(durations) for name, durations in medians.items() if durations}


@dataclass(frozen=True)
class Repeated:
    """Something that a program does again and again: `kind`, and the id of the object that does it, which need not be
    hashable."""

    kind: str
    number: int


class StepsWindow(Window):
    """Counts each optimizer, each CUDA graph and each model by itself. The first that is repeated often enough opens
    the window and defines what a step is.

    A step lasts from the end of an optimizer's step or of a replay to the next; of a model from call to call. A step of
    an optimizer ends where the range closes that PyTorch opens around it, so that no range is half in the window.
    A compiled optimizer runs no Python that could be heard, and in a backward pass, where hooks may call an optimizer
    for each weight, no window can open: then a step begins with the first call of a model after the weights have
    changed.

    Replays count since the last step that an optimizer made in Python: a graph may hold a part of a step only. Calls of
    modules with parameters count until the program makes an optimizer, or always where the settings ask for CALLS. If
    the window opened by such calls, and an optimizer makes steps afterwards, the program only evaluated its model
    before it trained it: the window starts over, where the profiler can.

    A replay runs no Python: its kernels belong to the ranges that are open while the graph is captured.
    So the window opens before the first capture.
    """

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        super().__init__(recorder, settings)
        self._counts: dict[Repeated, int] = {}
        self._names: dict[Repeated, str] = {}
        self._order: dict[Repeated, int] = {}  # of the last repetition of each, among those of all
        self._step: Repeated | None = None  # what defines a step
        self._optimizers = WeightChanges()
        self._clocks: defaultdict[Repeated, StepClock] = defaultdict(StepClock)
        self._calls = OutermostCalls(self._call_begins)

    def attach(self) -> None:
        self._calls.begin()
        if self.settings.window == CALLS:
            return
        graph = torch.cuda.graphs.CUDAGraph
        graph.replay = heard(graph.replay, after=self._after_replay)
        graph.capture_begin = heard(graph.capture_begin, before=self._before_capture)
        Optimizer.__init__ = heard(Optimizer.__init__, after=lambda optimizer, *_: self._optimizers.add(optimizer))

    def left(self, name: str, optimizer: Any = None) -> None:
        if optimizer is None or self.settings.window == CALLS or _is_capturing():
            return
        if not is_in_backward():  # else its change of the weights is heard, at the next call
            self._hears_steps()
            self._boundary(Repeated(OPTIMIZER, id(optimizer)), type(optimizer).__name__)

    def progress(self) -> dict[str, Any]:
        repeated = [[known.kind, self._names[known], count] for known, count in self._counts.items()]
        reached = max((count for *_, count in repeated), default=0)
        facts = {"reached": reached, "repeated": repeated[:MOST_REPEATED]}
        facts |= {} if self._step is None else self._clocks[self._step].facts()
        return facts | ({"has_optimizer": True} if self._optimizers else {})

    def _hears_steps(self) -> None:
        """An optimizer has made a step that was heard, so nothing else that is counted is a step."""
        self._optimizers.stop()
        if self._step is None or self._step.kind != MODULE:
            self._calls.end()
        for other in [known for known in self._counts if known.kind in (GRAPH, MODULE) and known != self._step]:
            del self._counts[other]

    def _before_capture(self, *_: Any) -> None:
        if not _is_capturing():
            self.recorder.open()

    def _after_replay(self, graph: Any) -> None:
        if not _is_capturing():
            self._boundary(Repeated(GRAPH, id(graph)), "a CUDA graph")

    def _call_begins(self, module: nn.Module, args: tuple) -> None:
        waited = self.recorder.waits
        if not (waited or self.recorder.is_open):
            self._calls.end()
        if _is_capturing() or next(module.parameters(), None) is None:
            return
        if waited:
            self.recorder.parts.call_before_window(module, args)
        if self._optimizers and (self._step is None or self._step.kind != MODULE):
            for optimizer in self._optimizers.changed():
                self._boundary(Repeated(WEIGHTS, id(optimizer)), type(optimizer).__name__)
        else:
            self._boundary(Repeated(MODULE, id(module)), model_name(module))
        if waited and self.recorder.is_open:
            self.recorder.parts.call_begins(module, args)

    def _number(self, repeated: Repeated) -> int:
        """How many of its kind were counted before it."""
        return [known for known in self._counts if known.kind == repeated.kind].index(repeated)

    def _boundary(self, repeated: Repeated, name: str) -> None:
        """A step of this ends here; or, of a model, the next begins here."""
        recorder, before = self.recorder, self._order.get(repeated, 0)
        self._order[repeated] = max(self._order.values(), default=0) + 1
        self._counts[repeated] = count = self._counts.get(repeated, 0) + 1
        self._names[repeated] = name
        self._clocks[repeated].tick()
        if recorder.is_open and repeated == self._step:
            recorder.done += 1
            recorder.parts.step_ends()
            if recorder.done == self.settings.steps:
                self._calls.end()
                recorder.close()
            else:
                recorder.parts.step_begins()
        elif self._may_define_steps(repeated):
            over = count - (repeated.kind == MODULE)
            if over >= self.settings.skip and not self._is_inside(repeated, before):
                self._begin(repeated, first=over + 1, by=repeated.kind, name=name)

    def _is_inside(self, repeated: Repeated, before: int) -> bool:
        """Whether optimizers take turns, and another one is next: an iteration ends with the last of them. `before` is
        the order of the previous step of this one."""
        return repeated.kind == OPTIMIZER and any(
            other.kind == OPTIMIZER and count == self._counts[repeated] - 1 and self._order[other] > before
            for other, count in self._counts.items()
        )

    def _may_define_steps(self, repeated: Repeated) -> bool:
        if self._step is None:
            return self.recorder.waits or self.recorder.is_open
        is_of_calls = self._step.kind == MODULE and self.settings.window != CALLS
        return is_of_calls and repeated.kind == OPTIMIZER and self.recorder.can_start_over

    def _begin(self, repeated: Repeated, **facts: Any) -> None:
        """The first step of the window begins here, if the window can open."""
        facts["number"] = self._number(repeated)
        if self._step is not None:
            self.recorder.start_over()
        if self.recorder.is_open:
            self.recorder.add_facts(**facts)
        elif not self.recorder.open(**facts):
            if not self.recorder.waits:
                self._calls.end()
            return
        self._step = repeated
        self._clocks[repeated].restart()
        self.recorder.parts.step_begins()


def _is_capturing() -> bool:
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


class WeightChanges:
    """The optimizers of a program, and the versions of their weights. True if there are any."""

    def __init__(self) -> None:
        self._versions: list[tuple[weakref.ref[Optimizer], int]] | None = []
        self._has_any = False

    def __bool__(self) -> bool:
        return self._has_any

    def add(self, optimizer: Optimizer) -> None:
        """Watches the weights of this optimizer too."""
        self._has_any = True
        if self._versions is not None:
            self._versions.append((weakref.ref(optimizer), _version(optimizer)))

    def stop(self) -> None:
        """Watches no more, since steps can be heard."""
        self._versions = None

    def changed(self) -> Iterator[Optimizer]:
        """The optimizers whose weights were written to since the last time."""
        for place, (reference, before) in enumerate(self._versions or ()):
            optimizer = reference()
            if optimizer is not None and (version := _version(optimizer)) != before:
                self._versions[place] = reference, version
                yield optimizer


def _version(optimizer: Optimizer) -> int:
    """A number that grows when a weight of this optimizer is written to, as PyTorch counts it for autograd."""
    version = 0
    with suppress(Exception):  # weights made in inference mode, and classes of the program's own, may have no version
        for group in optimizer.param_groups:
            version += sum(weight._version for weight in group["params"])
    return version
