"""The recorder of this process, put together from the settings; PyTorch is imported."""

import torch

from kernel_recorder.in_process.compiled_ranges import FollowedModules
from kernel_recorder.in_process.module_ranges import ModuleRanges
from kernel_recorder.in_process.notes import Notes
from kernel_recorder.in_process.parts import Parts
from kernel_recorder.in_process.passes import Passes
from kernel_recorder.in_process.profilers import NsysProfiler, TorchProfiler
from kernel_recorder.in_process.program_ranges import PLAIN_POP, PLAIN_PUSH, ProgramRanges, printable
from kernel_recorder.in_process.ranks import Ranks
from kernel_recorder.in_process.recorder import Recorder
from kernel_recorder.in_process.settings import (
    ALWAYS,
    CALLS,
    NEVER,
    NSYS,
    PROGRAM,
    RANGE,
    SECONDS,
    STEPS,
    Settings,
)
from kernel_recorder.in_process.steps_window import StepsWindow
from kernel_recorder.in_process.windows import ProgramWindow, RangeWindow, SecondsWindow
from range_marks.closures import Closures
from range_marks.emitters import Emitter, record_function_emitter
from range_marks.imports import when_imported
from range_marks.marker import Marker

WINDOWS = {
    STEPS: StepsWindow,
    CALLS: StepsWindow,
    RANGE: RangeWindow,
    SECONDS: SecondsWindow,
    PROGRAM: ProgramWindow,
}


def watch_for_window(settings: Settings, notes: Notes) -> None:
    """Lets this process open and close its window by itself from now on. Raises RuntimeError if it cannot."""
    to_nvtx = settings.profiler == NSYS
    if to_nvtx and not torch.backends.cuda.is_built():
        raise RuntimeError("this PyTorch is built without CUDA, so nsys has nothing to record of it")
    marker = Marker(
        Emitter(lambda name: PLAIN_PUSH(printable(name)), PLAIN_POP) if to_nvtx else record_function_emitter()
    )
    modules = ModuleRanges(marker, settings.depth, Passes())
    if settings.modules != NEVER:
        FollowedModules(in_torch_profile=not to_nvtx)

    def wanted() -> bool:
        return settings.modules == ALWAYS or (settings.modules != NEVER and not window.has_own_ranges)

    ranks = Ranks(notes)
    ranks.watch()
    profiler = NsysProfiler(ranks) if to_nvtx else TorchProfiler()
    closures = Closures(lambda: ranges.outside_optimizer())
    recorder = Recorder(notes, ranks, profiler, Parts(wanted, modules, closures, to_nvtx=to_nvtx))
    window = WINDOWS[settings.window](recorder, settings)
    ranges = ProgramRanges(window, to_nvtx=to_nvtx, is_recording=lambda: recorder.is_open)
    ranges.watch_torch()
    when_imported("nvtx", ranges.watch_nvtx)
    profiler.watch_program(recorder.note_profile if to_nvtx else recorder.step_back)
    closures.attach()
    window.attach()
    recorder.end_with_process()
