"""Creates the recorder of this process from the settings, or for a block of code. This module imports PyTorch."""

from pathlib import Path

import torch
from torch.autograd.profiler import record_function as named_range  # noqa: F401 for context.py, which imports no torch

from kernel_recorder.in_process import handover
from kernel_recorder.in_process.compiled_ranges import CompilationHooks
from kernel_recorder.in_process.module_ranges import CallLog, ModuleRanges, WindowRanges
from kernel_recorder.in_process.profilers import NsysProfiler, TorchProfiler
from kernel_recorder.in_process.program_ranges import ORIGINAL_POP, ORIGINAL_PUSH, ProgramRanges, nvtx_text
from kernel_recorder.in_process.ranks import RankCoordinator
from kernel_recorder.in_process.recorder import Recorder, wait_for_device
from kernel_recorder.in_process.steps_window import StepsWindow
from kernel_recorder.in_process.windows import ProgramWindow, RangeWindow, SecondsWindow
from range_marks.closures import Closures
from range_marks.imports import when_imported
from range_marks.marker import Emitter, Marker, record_function_emitter

WINDOWS = {
    handover.STEPS: StepsWindow,
    handover.CALLS: StepsWindow,
    handover.RANGE: RangeWindow,
    handover.SECONDS: SecondsWindow,
    handover.PROGRAM: ProgramWindow,
}


def watch_for_window(settings: handover.Settings, notes: handover.Notes) -> None:
    """Sets the hooks that record the window of this process. Raises RuntimeError if nsys cannot record this PyTorch."""
    to_nvtx = settings.profiler == handover.NSYS
    if to_nvtx and not torch.backends.cuda.is_built():
        raise RuntimeError("this PyTorch is built without CUDA, so nsys has nothing to record of it")
    # The original functions, since ProgramRanges replaces those of PyTorch to see the program's own ranges.
    marker = Marker(
        Emitter(lambda name: ORIGINAL_PUSH(nvtx_text(name)), ORIGINAL_POP) if to_nvtx else record_function_emitter()
    )
    modules = ModuleRanges(marker, settings.depth, CallLog())
    if settings.added_ranges != handover.NEVER:
        CompilationHooks(in_torch_profile=not to_nvtx)  # never closed

    # The objects below call each other: these functions use `window` and `ranges`, which are bound later.
    def is_wanted(kind: str) -> bool:
        has_own = window.has_own_ranges if kind == handover.MODULES else window.has_own_steps
        return settings.added_ranges == handover.ALWAYS or (settings.added_ranges != handover.NEVER and not has_own)

    ranks = RankCoordinator(notes)
    ranks.watch()
    profiler = NsysProfiler(ranks) if to_nvtx else TorchProfiler()
    closures = Closures(lambda: ranges.outside_optimizer())
    recorder = Recorder(notes, ranks, profiler, WindowRanges(is_wanted, modules, closures, to_nvtx=to_nvtx))
    window = WINDOWS[settings.window](recorder, settings)
    ranges = ProgramRanges(window, to_nvtx=to_nvtx, is_recording=lambda: recorder.is_open)
    ranges.watch_torch()
    when_imported("nvtx", ranges.watch_nvtx)
    # nsys records on while the program profiles itself; PyTorch's profiler is left to the program.
    profiler.watch_program(recorder.note_profile if to_nvtx else recorder.leave_profiler)
    closures.attach()
    window.attach()
    recorder.end_with_process()


class BlockWindow:
    """A window that opens when it is created. Raises RuntimeError if PyTorch's profiler is running already."""

    torch_version = torch.__version__

    def __init__(self, *, with_modules: bool, depth: int | None) -> None:
        self._profiler = TorchProfiler()
        self._ranges = ProgramRanges(listener=None, to_nvtx=False)
        self._closures = Closures(self._ranges.outside_optimizer)
        self._modules = ModuleRanges(Marker(record_function_emitter()), depth, CallLog()) if with_modules else None
        wait_for_device()
        self._profiler.start()
        self._ranges.watch_record_function()
        self._closures.attach()
        self._closures.begin()
        if self._modules:
            self._modules.begin()

    def close(self) -> None:
        wait_for_device()
        if self._modules:
            self._modules.end()
        self._closures.detach()
        self._ranges.leave_record_function()
        self._profiler.stop()

    def save(self, folder: Path) -> None:
        """Writes the trace into the folder."""
        self._profiler.save(folder)
