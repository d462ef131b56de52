"""A window of so many steps of an optimizer."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from kernel_recorder.in_process.recorder import Recorder
from kernel_recorder.in_process.settings import Settings
from kernel_recorder.in_process.windows import Window

NOTED_STEPS = 20  # the durations of so many steps before the window are kept


class OptimizerWindow(Window):
    """Counts the steps of every optimizer by itself; the first to make enough of them opens the window.

    A step ends where the range closes that PyTorch itself opens around it, so that no range stands half in the window.
    """

    def __init__(self, recorder: Recorder, settings: Settings) -> None:
        super().__init__(recorder, settings)
        self._counts: dict[int, int] = {}  # by id, since an optimizer need not be hashable
        self._ended: int | None = None  # the optimizer whose step is over but for its range
        self._counted: int | None = None
        self._clock = StepClock()

    def attach(self) -> None:
        register_optimizer_step_post_hook(self._after_step)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._ended = id(optimizer)

    def left(self, name: str) -> None:
        if self._ended is not None:
            optimizer, self._ended = self._ended, None
            self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
            self._boundary(optimizer)

    def _boundary(self, optimizer: int) -> None:
        recorder, count = self.recorder, self._counts[optimizer]
        if recorder.is_open and optimizer == self._counted:
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
