"""Windows that open and close by a named range or by the program's own calls; see steps_window and seconds_window.

Each window listens to the program's ranges.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from kernel_recorder.in_process.recorder import Recorder
from kernel_recorder.in_process.settings import Settings


class Window:
    """The base of all windows: notes whether the program opened a range of its own before the window."""

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
        """The progress of this process towards the window."""
        return {}


class RangeWindow(Window):
    """Counts the instances of a named range; instances inside another one do not count."""

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
