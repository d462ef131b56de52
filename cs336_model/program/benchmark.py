"""Times the steps of one model, or runs them under a profiler, and writes the result as JSON.

    python -m cs336_model.program.benchmark --spec '{...}' --output result.json
    python -m cs336_model.program.benchmark ... --profiler torch --capture capture.sqlite
    python -m cs336_model.program.benchmark ... --profiler memory --capture memory_history.json.gz
    python -m cs336_model.program.benchmark ... --profiler energy --capture energy.json --windows 3 --window-s 5
    nsys profile --capture-range=nvtx ... python -m cs336_model.program.benchmark ... --profiler nsys

The status of the result is `complete`; `out_of_memory` on a real torch.OutOfMemoryError; `unsupported` if this machine
cannot run the variant or has no energy counter. Shortly before the time limit, a run writes a draft with the status
`overdue`, and replaces it if it still ends. The exit status is 0; with several ranks, a rank whose status is not
`complete` exits with RESULT_WITHOUT_TIMES. Wrong options, a model that cannot be measured as declared, and a file that
changed print one line, every other failure a traceback; all exit with another status, and leave at most a draft.
"""

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from cs336_model import ranges
from cs336_model.program import windows
from cs336_model.program.accuracy import Comparison
from cs336_model.program.device import device_facts, leave_device, open_context, resolve_device
from cs336_model.program.energy import EnergyPlan, Meter, counted_energy, energy_counter
from cs336_model.program.loading import record_packages
from cs336_model.program.memory.operations import followed_operations
from cs336_model.program.memory.recording import FirstStepDtypes, Recorder, recorder_on, save_memory
from cs336_model.program.non_finite import where_not_finite
from cs336_model.program.out_of_memory import OutOfMemoryError, out_of_memory_record
from cs336_model.program.parallel.launch import RESULT_WITHOUT_TIMES, WORLD_SIZE
from cs336_model.program.parallel.ranks import join_group, leave_group, this_rank, wait_for_all
from cs336_model.program.parallel.reduction import import_late_modules
from cs336_model.program.process import Progress, before_limit, process_age_seconds, program_parser, wait_for_lease
from cs336_model.program.result import Result, counted_flops, empty_result, planned_flops, process_facts, write_result
from cs336_model.program.spec import RunSpec, read_spec
from cs336_model.program.steps import (
    NotFinite,
    PhaseClock,
    Subject,
    finite_losses,
    loss_of_forward,
    make_subject,
    run_steps,
    seconds_without_communication,
)
from cs336_model.program.targets import UnusableModel
from cs336_model.program.variants.effects import compiling, graph_counts, is_compiled, process_settings
from cs336_model.program.without_times import OVERDUE, WithoutTimes


@dataclass
class RunState:
    """The options of a run that are not its specification, and what it has made so far."""

    profiler: str
    capture_path: Path | None = None  # the file that the profiler writes
    compares_with_fp64: bool = True  # whether the first step is compared, after all measurements
    energy_plan: EnergyPlan | None = None  # for --profiler energy
    close_recording: Callable[[], None] = windows.close_nothing  # ends nsys's recording
    result_path: Path | None = None

    memory_recorder: Recorder | None = None  # None before and after recording
    subject: Subject | None = None
    dtypes: FirstStepDtypes | None = None  # of the subject, if memory is recorded

    def save_memory(self) -> None:
        """Ends the recording of memory, if there is one, and writes the history up to now."""
        recorder, self.memory_recorder = self.memory_recorder, None
        if recorder:
            save_memory(recorder, self.subject, self.dtypes, self.capture_path)


def main(arguments: list[str] | None = None) -> None:
    """Runs one specification and writes its result."""
    parser = program_parser("cs336_model.program.benchmark", __doc__.partition("\n")[0])
    parser.add_argument("--profiler", choices=tuple(windows.EMITTER_OF_PROFILER), default="none", help="default: none")
    parser.add_argument("--capture", type=Path, help="file for the recording of --profiler torch, memory or energy")
    parser.add_argument(
        "--accuracy", choices=("yes", "no"), default="yes", help="without a profiler: compare the first step with fp64"
    )
    parser.add_argument("--windows", type=int, default=3, help="number of windows of --profiler energy; default: 3")
    parser.add_argument("--window-s", type=float, default=5.0, help="minimum seconds of a window; default: 5")
    options = parser.parse_args(arguments)
    if (options.profiler in windows.WRITING_PROFILERS) != (options.capture is not None):
        names = ", ".join(windows.WRITING_PROFILERS)
        raise SystemExit(f"--capture names the file of --profiler {names}: give both or neither")
    progress = Progress()
    spec, rank = read_spec(options.spec), this_rank()
    record_packages(spec.targets)
    if rank.count != spec.dimensions["gpus"]:
        raise SystemExit(f"gpus is {spec.dimensions['gpus']}, and {WORLD_SIZE} is {rank.count}: they must be equal")
    import_late_modules(spec)
    progress.seconds["import"] = process_age_seconds()
    with progress.stage("profiler"):
        close_recording = windows.open_recording(options.profiler)
    wait_for_lease(options, progress)
    state = RunState(
        profiler=options.profiler, capture_path=options.capture, compares_with_fp64=options.accuracy == "yes",
        energy_plan=EnergyPlan(options.windows, options.window_s) if options.profiler == windows.ENERGY else None,
        close_recording=close_recording, result_path=options.output,
    )  # fmt: skip
    try:
        result = run(spec, state, progress)
    except UnusableModel as error:
        raise SystemExit(f"{spec.run}: {error}") from None
    write_result(result, options.output)
    if rank.count > 1 and result["status"] != "complete":
        os._exit(RESULT_WITHOUT_TIMES)  # at once: leaving the group of processes would wait for the others


def run(spec: RunSpec, state: RunState, progress: Progress) -> Result:
    """The result of one run: complete, out of memory, or without times for another reason."""
    device = resolve_device(spec.device, this_rank().number)
    recorder = recorder_on(device) if state.profiler == windows.MEMORY else None
    ranges.emit_ranges(recorder.emitter if recorder else windows.EMITTER_OF_PROFILER[state.profiler])
    result = empty_result(spec, state.profiler)

    def result_so_far() -> Result:
        return result | device_facts(device) | process_facts(progress, device, spec.targets)

    def write_overdue() -> None:
        write_result(result_so_far() | {"status": OVERDUE, "reason": progress.during}, state.result_path)

    operations_context = followed_operations(spec, recorder.operation if recorder else None)
    with process_settings(spec), operations_context:
        state.memory_recorder = recorder
        with before_limit(write_overdue):
            result |= measurement_or_reason(spec, device, state, progress)
        if state.profiler != windows.NCU:  # ncu keeps the GPU's counters until this process is gone
            leave_device(device)
    return result | process_facts(progress, device, spec.targets)


def measurement_or_reason(spec: RunSpec, device: torch.device, state: RunState, progress: Progress) -> Result:
    """The entries of a complete result, or of one without times."""
    try:
        return measure(spec, device, state, progress)
    except OutOfMemoryError as error:
        _log(spec, f"out of memory during {progress.during}: {error}")
        entries = {"status": "out_of_memory", "out_of_memory": out_of_memory_record(error, progress.during)}
        state.save_memory()
    except WithoutTimes as error:
        _log(spec, f"{error.status}: {error}")
        entries = {"status": error.status, "reason": str(error)}
        if state.memory_recorder:
            state.memory_recorder.stop()
    return entries | device_facts(device)


def measure(spec: RunSpec, device: torch.device, state: RunState, progress: Progress) -> Result:
    """The entries of a complete result. A capture has only the measured steps, after the warm-up; the history of memory
    has the entire run."""
    with progress.stage("context"):
        open_context(device)
        join_group(device)
        # without a counter, this raises before the model is made
        meter = Meter(device, energy_counter(device)) if state.energy_plan else None
    with progress.stage("initialise"):
        state.subject = subject = make_subject(spec, device)
    _log(spec, f"initialised on {device.type} in {progress.seconds['initialise']:.1f} s")
    state.dtypes = FirstStepDtypes(subject) if state.profiler == windows.MEMORY else None
    # also made if the comparison is switched off: its record then gives that reason
    comparison = Comparison(subject, state.compares_with_fp64) if state.profiler == "none" else None
    compile_in_first_step(subject, progress)
    graphs_before = graph_counts(spec)
    result = warm_up(subject, progress) | measured_window(subject, state, meter, graphs_before, progress)
    if comparison:
        result["step_no_sync_seconds"] = seconds_without_communication(subject, progress)
        with progress.stage("accuracy"):
            result["accuracy"] = comparison.errors(subject)
    leave_group()  # not after an exception: other ranks may hang, and the launcher ends them
    return {"status": "complete"} | result


def measured_window(
    subject: Subject, state: RunState, meter: Meter | None, graphs_before: Mapping | None, progress: Progress
) -> Result:
    """Runs the measured steps, which the profiler sees, and returns their entries of the result. `graphs_before` has
    the counts of compiled graphs before the warm-up; None if nothing is compiled."""
    spec, device = subject.spec, subject.device
    result = {}
    clock = PhaseClock(device, ranges.MEASURE, progress)
    count_flops = partial(flops_and_missing_loss, subject, progress)
    # nsys and ncu still record at the end of the window, so a pass that counts FLOPs comes before it. Without warm-up
    # it comes at the end all the same, because the first step of all is to be measured.
    flops = count_flops() if state.profiler in windows.CUDA_PROFILERS and spec.warmup_steps else None

    def at_end() -> None:
        # first of all, while the GPU's clocks are those under load, and the peak memory is that of the steps
        result.update(device_facts(device), parameters=subject.parameter_count)
        result["compilation"] = graph_counts(spec, graphs_before)
        # counted now, because energy windows add losses, whose number varies; if steps have none, an extra pass has one
        loss_count = len(subject.losses) or 1
        state.save_memory()
        if meter:
            with progress.stage(windows.ENERGY):
                write_result(counted_energy(subject, meter, state.energy_plan, progress), state.capture_path)
        result.update(flops=flops or count_flops(), losses=checked_losses(subject)[:loss_count])
        if state.profiler == windows.NSYS:
            subject.free_model()
            leave_group()
            leave_device(device)

    window = windows.profiled_window(state.profiler, device, at_end, state.close_recording)
    with progress.stage("profiler"), window as torch_profile, progress.stage("measured"):
        wait_for_all(device)
        step_seconds = run_steps(subject, spec.measured_steps, clock)
    _log(spec, f"{_steps('measured', spec.measured_steps)} in {progress.seconds['measured']:.1f} s")
    result |= {"step_seconds": step_seconds, "phase_seconds": clock.seconds(), "phase_clock": clock.name}
    with progress.stage("profiler"):
        windows.save_capture(torch_profile, state.capture_path, device)
    return result


def compile_in_first_step(subject: Subject, progress: Progress) -> None:
    """Runs the step in which the model is compiled, if it is to be: its time is not warm-up."""
    if not is_compiled(subject.spec):
        return
    with progress.stage("compile"), compiling(subject.spec):
        run_steps(subject, 1, PhaseClock(subject.device, ranges.COMPILE, progress))
    _log(subject.spec, f"compiled in {progress.seconds['compile']:.1f} s")


def warm_up(subject: Subject, progress: Progress) -> Result:
    """Runs the warm-up steps, and returns their entries in the result."""
    clock = PhaseClock(subject.device, ranges.WARMUP, progress)
    with progress.stage("warmup"):
        seconds = run_steps(subject, subject.spec.warmup_steps, clock)
    _log(subject.spec, f"{_steps('warm-up', subject.spec.warmup_steps)} in {progress.seconds['warmup']:.1f} s")
    return {"warmup_seconds": seconds, "warmup_phase_seconds": clock.seconds()}


def flops_and_missing_loss(subject: Subject, progress: Progress) -> Result:
    """The FLOPs of the run; for a custom model, an extra pass counts them. If steps have no loss, this also appends the
    loss of an extra forward pass to the subject's losses. Losses and FLOPs show that two runs did the same work."""
    progress.during = "the passes outside the window"
    if ranges.LOSS not in subject.spec.phases:
        subject.losses.append(loss_of_forward(subject))
    flops = planned_flops(subject.spec)
    return counted_flops(subject) if flops["forward"] is None else flops


def checked_losses(subject: Subject) -> list[float]:
    """The losses. If one is not finite, raises FloatingPointError, with the step and with the operator where numbers
    stopped being finite."""
    try:
        return finite_losses(subject)
    except NotFinite as error:
        spec, device = subject.spec, subject.device
        subject.free_model()
        raise FloatingPointError(f"{error}; {where_not_finite(spec, device, error.step + 1)}") from None


def _steps(kind: str, number: int) -> str:
    return f"{number} {kind} step{'' if number == 1 else 's'}"


def _log(spec: RunSpec, message: str) -> None:
    print(f"{spec.run}: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
