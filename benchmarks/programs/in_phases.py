"""Runs a program with torch.profiler around some of its steps, and counts the kernels of each phase.

python -m benchmarks.programs.in_phases FILE optimizer|module SKIPPED STEPS PROGRAM [ARGUMENT ...]

Of several ranks, rank 1 writes FILE with _rank1 in its name, and so on.
A kernel belongs to the phase in whose range its launch is by time, on any thread: there are ranges around calls of
modules, around torch.autograd.backward, and around optimizers and their closures. Without a GPU, an outermost operator
of PyTorch counts as a kernel.
"""

import json
import math
import os
import runpy
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.autograd.profiler import record_function
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.profiler import ProfilerActivity, profile

from range_marks.module_parts import ModuleHooks
from range_marks.uncompiled import uncompiled, uncompiled_wrapper

FORWARD, BACKWARD, CLOSURE = "counted forward", "counted backward", "counted closure"
OPTIMIZER = "Optimizer.step#"  # the beginning of the names of PyTorch's own ranges
PHASES = {"backward": BACKWARD, "forward": FORWARD, "rest": CLOSURE, "optimizer": OPTIMIZER}  # inner ones first


class Window:
    """Runs torch.profiler from the boundary after `skipped` steps to the one after `steps` more. Boundaries are counted
    separately for each optimizer or module. The first one that reaches `skipped` begins the window, and ends it."""

    def __init__(self, path: Path, skipped: int, steps: int) -> None:
        self.path, self.skipped, self.steps = path, skipped, steps
        self.counts: dict[int, int] = defaultdict(int)  # by id of the optimizer or module
        self.counted_id: int | None = None
        self.profiler = None

    def boundary(self, object_id: int) -> None:
        """Counts a boundary of the optimizer or module with this id; begins or ends the window if it is there."""
        if self.path.exists():  # the window is over
            return
        self.counts[object_id] += 1
        if self.profiler is None and self.counts[object_id] == self.skipped:
            self.counted_id = object_id
            synchronize()
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
            self.profiler = profile(activities=activities)
            self.profiler.__enter__()
        elif object_id == self.counted_id and self.counts[object_id] == self.skipped + self.steps:
            synchronize()
            self.profiler.__exit__(None, None, None)
            self.path.write_text(json.dumps(by_phase(events_of(self.profiler))))


def main(file: str, kind: str, skipped: str, steps: str, program: str, *arguments: str) -> None:
    """Runs a program with this kind of boundaries between steps: "optimizer" or "module"."""
    path = file_of_rank(Path(file), int(os.environ.get("RANK", 0)))
    os.environ["TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE"] = "1"  # otherwise its kernels on a CPU are not recorded
    # A boundary is at the end of an optimizer's step, or at the start of a module's call, which comes before its step.
    window = Window(path, int(skipped) + (kind == "module"), int(steps))
    watch(kind, window.boundary)
    sys.path[0] = str(Path(program).parent)
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


def file_of_rank(path: Path, rank: int) -> Path:
    """The name that `kernel-tables record` gives to the file of a rank."""
    return path.with_stem(f"{path.stem}_rank{rank}") if rank else path


def watch(kind: str, boundary: Callable[[int], None]) -> None:
    """Opens the ranges of phases, and calls `boundary` at the end of each optimizer's step or, for the kind "module",
    at the start of each outermost call of a module with parameters."""
    open_ranges: list = []

    def before(module: torch.nn.Module, _: object) -> None:
        if not open_ranges and kind == "module" and next(module.parameters(), None) is not None:
            boundary(id(module))
        open_ranges.append(record_function(FORWARD))
        open_ranges[-1].__enter__()

    def after(*_: object) -> None:
        open_ranges.pop().__exit__(None, None, None)

    ModuleHooks(uncompiled(before), uncompiled(after)).begin()
    torch.autograd.backward = in_range(BACKWARD, torch.autograd.backward)
    register_optimizer_step_pre_hook(with_closure_in_range)
    if kind == "optimizer":
        register_optimizer_step_post_hook(lambda optimizer, *_: boundary(id(optimizer)))


def in_range(name: str, function: Callable) -> Callable:
    def wrapper(*args: object, **kwargs: object) -> object:
        with record_function(name):
            return function(*args, **kwargs)

    return uncompiled_wrapper(wrapper)


def with_closure_in_range(_: object, args: tuple, kwargs: dict) -> tuple[tuple, dict] | None:
    """The arguments of a step with its closure in a range; None (no change) if no closure was passed by keyword."""
    closure = kwargs.get("closure")
    return (args, kwargs | {"closure": in_range(CLOSURE, closure)}) if closure else None


def events_of(profiler: profile) -> list[dict]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        return [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]


def by_phase(events: list[dict]) -> dict[str, dict[str, float]]:
    """The number of kernels and their milliseconds, by phase, `rest`, `communication` (of all phases) and `all`."""
    ranges = [event for event in events if event.get("cat") == "user_annotation"]
    intervals_us = {phase: _intervals_us(ranges, prefix) for phase, prefix in PHASES.items()}
    totals = {phase: {"kernels": 0, "ms": 0.0} for phase in (*PHASES, "communication", "all")}
    for kernel in launched_kernels(events):
        phases = (phase for phase in PHASES if is_inside(kernel.launch_us, intervals_us[phase]))
        for group in (next(phases, "rest"), "all", *(["communication"] if kernel.is_collective else [])):
            totals[group]["kernels"] += 1
            totals[group]["ms"] += kernel.duration_us / 1e3
    return totals


class LaunchedKernel(NamedTuple):
    """A kernel or, without a GPU, an operator that counts as one. `launch_us` is NaN if it is unknown."""

    launch_us: float
    duration_us: float
    is_collective: bool


def launched_kernels(events: list[dict]) -> list[LaunchedKernel]:
    if torch.cuda.is_available():
        calls = [event for event in events if event.get("cat") in ("cuda_runtime", "cuda_driver")]
        times_us = {call["args"]["correlation"]: call["ts"] for call in calls}
        kernels = [(event["args"]["correlation"], event) for event in events if event.get("cat") == "kernel"]
        return [LaunchedKernel(times_us.get(i, math.nan), e["dur"], e["name"].startswith("nccl")) for i, e in kernels]
    collectives = [event for event in events if is_operator(event, "c10d::")]
    kernels = [LaunchedKernel(event["ts"], event["dur"], is_collective=True) for event in collectives]
    # the last two prefixes are those of Inductor
    operators = [event for event in events if is_operator(event, ("aten::", "cpp_fused_", "graph_"))]
    outer_end_us: dict[int, float] = defaultdict(float)  # by thread
    for event in sorted(operators, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] >= outer_end_us[event["tid"]]:
            kernels.append(LaunchedKernel(event["ts"], event["dur"], is_collective=False))
            outer_end_us[event["tid"]] = event["ts"] + event["dur"]
    return kernels


def is_operator(event: dict, prefix: str | tuple[str, ...]) -> bool:
    return event.get("cat") == "cpu_op" and event["name"].startswith(prefix)


def _intervals_us(ranges: list[dict], prefix: str) -> np.ndarray:
    """(start, end) of each range whose name has this prefix."""
    named = [event for event in ranges if event["name"].startswith(prefix)]
    return np.array([(event["ts"], event["ts"] + event["dur"]) for event in named]).reshape(-1, 2)


def is_inside(time_us: float, intervals_us: np.ndarray) -> bool:
    """Whether one of the intervals holds the time."""
    return bool(((intervals_us[:, 0] <= time_us) & (time_us <= intervals_us[:, 1])).any())


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main(*sys.argv[1:])
