"""A window of PyTorch's profiler around a block of code."""

from pathlib import Path

import torch
from torch.autograd.profiler import record_function

from kernel_recorder.in_process.module_ranges import ModuleRanges
from kernel_recorder.in_process.passes import Passes
from kernel_recorder.in_process.profilers import TorchProfiler
from kernel_recorder.in_process.program_ranges import ProgramRanges
from kernel_recorder.in_process.recorder import wait_for_device
from range_marks.closures import Closures
from range_marks.emitters import record_function_emitter
from range_marks.marker import Marker


class BlockWindow:
    """A window that opens at once. RuntimeError if PyTorch's profiler is running already."""

    torch_version = torch.__version__

    def __init__(self, *, with_modules: bool, depth: int | None) -> None:
        self._profiler = TorchProfiler()
        self._ranges = ProgramRanges(None, to_nvtx=False)
        self._closures = Closures(self._ranges.outside_optimizer)
        self._modules = ModuleRanges(Marker(record_function_emitter()), depth, Passes()) if with_modules else None
        wait_for_device()
        self._profiler.start()
        self._ranges.watch_record_function()
        self._closures.attach()
        self._closures.begin()
        if self._modules:
            self._modules.begin()

    def close(self) -> None:
        """Ends the window."""
        wait_for_device()
        if self._modules:
            self._modules.end()
        self._closures.leave()
        self._ranges.leave_record_function()
        self._profiler.stop()

    def save(self, folder: Path) -> None:
        """Writes the trace into the folder."""
        self._profiler.save(folder)


def named_range(name: str) -> record_function:
    """A range as a context manager."""
    return record_function(name)
