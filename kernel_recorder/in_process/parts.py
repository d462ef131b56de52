"""The ranges that the recorder opens in its window: one for each step, and one for each module."""

from collections.abc import Callable

import torch
from torch.autograd.profiler import record_function

from kernel_recorder.in_process.module_ranges import ModuleRanges
from kernel_recorder.in_process.settings import STEP
from range_marks.closures import Closures
from range_marks.module_hooks import keywords_of_call


class Parts:
    """Opens ranges where they are wanted, which is asked when the window opens; closes that of an optimizer while it
    runs a closure."""

    def __init__(self, wanted: Callable[[], bool], modules: ModuleRanges, closures: Closures, *, to_nvtx: bool) -> None:
        self._wanted, self._modules, self._closures, self._to_nvtx = wanted, modules, closures, to_nvtx
        self.are_wanted = False
        self._close_step: Callable[[], object] | None = None

    def begin(self) -> None:
        """The window has opened."""
        self.are_wanted = self._wanted()
        self._closures.begin()
        if self.are_wanted:
            self._modules.passes.steps.clear()
            self._modules.begin()

    def end(self) -> None:
        """The window is about to close."""
        if self.are_wanted:
            self._modules.end()
        self._closures.end()
        self.step_ends()

    def step_begins(self) -> None:
        if not self.are_wanted:
            return
        self._modules.passes.step_begins()
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

    def call_begins(self, module: torch.nn.Module, args: tuple) -> None:
        """The window has opened in the hooks before a call of this module."""
        if self.are_wanted:
            self._modules.call_begins(module, args)

    def call_before_window(self, module: torch.nn.Module, args: tuple) -> None:
        """Lengths of earlier calls tell decoding from other inference."""
        self._modules.passes.kind(module, args, keywords_of_call())

    def facts(self) -> dict[str, object]:
        """What the steps of the window ran, as far as modules had ranges."""
        return {"passes": [dict(step) for step in self._modules.passes.steps]} if self.are_wanted else {}
