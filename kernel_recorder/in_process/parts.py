"""The ranges that the recorder opens in its window: one for each step, and one for each module."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.autograd.profiler import record_function

from kernel_recorder.in_process.module_ranges import ModuleRanges
from kernel_recorder.in_process.settings import STEP


class Parts:
    """Opens ranges where they are wanted, which is asked when the window opens."""

    def __init__(self, wanted: Callable[[], bool], modules: ModuleRanges, *, to_nvtx: bool) -> None:
        self._wanted, self._modules, self._to_nvtx = wanted, modules, to_nvtx
        self.are_wanted = False
        self._close_step: Callable[[], object] | None = None

    def begin(self) -> None:
        """The window has opened."""
        self.are_wanted = self._wanted()
        if self.are_wanted:
            self._modules.begin()

    def end(self) -> None:
        """The window is about to close."""
        self.step_ends()
        if self.are_wanted:
            self._modules.end()

    def step_begins(self) -> None:
        if not self.are_wanted:
            return
        if self._to_nvtx:  # no push and pop: ranges of the program may open in one step and close in the next
            number = torch.cuda.nvtx.range_start(STEP)
            self._close_step = lambda: torch.cuda.nvtx.range_end(number)
        else:
            opened = record_function(STEP)
            opened.__enter__()
            self._close_step = lambda: opened.__exit__(None, None, None)

    def step_ends(self) -> None:
        if self._close_step is not None:
            close, self._close_step = self._close_step, None
            close()
