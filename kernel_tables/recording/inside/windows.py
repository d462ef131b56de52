"""What opens the window and what closes it: optimizer steps, a named range, a time, or the program's own calls.

Each is a listener of the program's ranges: an optimizer's step ends where the range closes that PyTorch itself opens
around it, so that no range stands half inside the window.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from kernel_tables.recording.inside.recorder import Recorder
from kernel_tables.recording.inside.settings import Settings

NOTED_STEPS = 20  # the durations of so many steps before the window are kept


class Window:
    """What all have in common: whether the program opened a range of its own before the window opened."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        self.recorder, self.settings = recorder, settings
        recorder.progress = self.progress
        self.has_own_ranges = False

    def attach(self) -> None:
        """Begins to look for the window, once PyTorch is imported."""

    def entering(self, name: str, *, of_torch: bool) -> None:
        self.has_own_ranges |= not of_torch and self.recorder.waits

    def left(self, name: str) -> None:
        """A range has closed."""

    def progress(self) -> dict[str, Any]:
        """How far this process came towards the window."""
        return {}


class OptimizerWindow(Window):
    """Counts the steps of every optimizer by itself; the first to make enough of them opens the window."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        super().__init__(recorder, settings)
        self._counts: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._ended: Any = None  # the optimizer whose step is over but for its range
        self._counted: Any = None
        self._clock = StepClock()

    def attach(self) -> None:
        register_optimizer_step_post_hook(self._after_step)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._ended = optimizer

    def left(self, name: str) -> None:
        if self._ended is not None:
            optimizer, self._ended = self._ended, None
            self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
            self._boundary(optimizer)

    def _boundary(self, optimizer: Any) -> None:
        recorder, count = self.recorder, self._counts[optimizer]
        if recorder.is_open and optimizer is self._counted:
            self._clock.tick()
            recorder.done += 1
            recorder.step_ends()
            if recorder.done == self.settings.steps:
                recorder.close()
            else:
                recorder.step_begins()
        elif recorder.waits:
            if count == max(self._counts.values()):
                self._clock.tick()
            if count == self.settings.skip:
                self._counted = optimizer
                if recorder.open(first=count + 1):
                    self._clock.restart()
                    recorder.step_begins()

    def progress(self) -> dict[str, Any]:
        return {"reached": max(self._counts.values(), default=0), **self._clock.facts()}


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
        """The median of each, in seconds, where there is one."""
        medians = {"step_before_s": self._before_s, "step_within_s": self._within_s}
        return {name: statistics.median(durations) for name, durations in medians.items() if durations}


class RangeWindow(Window):
    """Counts the instances of a range by its name; one inside another of the same name is part of it."""

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        super().__init__(recorder, settings)
        self._seen = 0
        self._depth = threading.local()

    def entering(self, name: str, *, of_torch: bool) -> None:
        super().entering(name, of_torch=of_torch)
        if name != self.settings.range:
            return
        self._depth.value = getattr(self._depth, "value", 0) + 1
        if self._depth.value == 1 and self.recorder.waits:
            self._seen += 1
            if self._seen > self.settings.skip:
                self.recorder.open(first=self._seen)

    def left(self, name: str) -> None:
        if name != self.settings.range or not getattr(self._depth, "value", 0):
            return
        self._depth.value -= 1
        if self._depth.value == 0 and self.recorder.is_open:
            self.recorder.done += 1
            if self.recorder.done == self.settings.steps:
                self.recorder.close()

    def progress(self) -> dict[str, Any]:
        return {"reached": self._seen}


class SecondsWindow(Window):
    """Opens and closes at times after PyTorch was imported, on the main thread, as soon as that runs Python."""

    def attach(self) -> None:
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        time.sleep(self.settings.after)
        on_main_thread(self.recorder.open)
        while self.recorder.waits:
            time.sleep(0.01)
        time.sleep(self.settings.seconds)
        on_main_thread(self.recorder.close)


class ProgramWindow(Window):
    """Opens and closes where the program calls cudaProfilerStart and cudaProfilerStop, through PyTorch."""

    def attach(self) -> None:
        torch.cuda.cudart = torch.cuda.profiler.cudart = lambda: _Cudart(self.recorder)


class _Cudart:
    """torch.cuda.cudart() whose two calls for profilers are heard."""

    plain = staticmethod(torch.cuda.cudart)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain(), name)

    def cudaProfilerStart(self) -> Any:
        self._recorder.open()
        return self.plain().cudaProfilerStart()

    def cudaProfilerStop(self) -> Any:
        try:
            return self.plain().cudaProfilerStop()
        finally:
            self._recorder.close()


_kept: list[Any] = []  # what the interpreter was asked to call must live until it does


def on_main_thread(call: Callable[[], Any]) -> None:
    """Asks the interpreter to call on the main thread as soon as that runs Python: a profiler belongs to the thread
    that starts it, and a signal handler would be the program's."""

    def called(_: Any) -> int:
        call()
        return 0

    pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(called)
    _kept.append(pending)
    ctypes.pythonapi.Py_AddPendingCall(pending, None)
