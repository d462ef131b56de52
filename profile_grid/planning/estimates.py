"""Estimates for a grid before it runs: time, disk and memory."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from cs336_model.arithmetic.checkpoints import recomputed_flops
from cs336_model.arithmetic.flops import BACKWARD_IN_FORWARDS, forward_flops, shape_of
from cs336_model.ranges import BACKWARD, PHASES_OF_MODE
from kernel_recorder.nsys_profile import gpu_is_visible
from profile_grid.gpu_peaks import Peaks, peaks_of
from profile_grid.host.gpu_check import needed_bytes
from profile_grid.results.results import COMPLETE, BadResult, StageResult, read_result
from profile_grid.stages.operator import estimates as operator_estimates
from profile_grid.study.stage import Stage
from profile_grid.study.stages import COUNTERS, OPERATOR, STAGE_BY_NAME, STAGES
from profile_grid.study.workloads import MODEL_STEPS, Workload

USUAL_SHARE_OF_PEAK = 0.6  # H200, fp32: 2.7B at context 1024 reaches 39.6 of 67 TFLOP/s
USUAL_GPU = "NVIDIA H200"
USUAL_START_S, USUAL_END_S = 3.0, 5.0  # start of a process; of a capture also the end of nsys and its export
UNSUPPORTED_S = 0.1  # a job that counts kernels where there is no GPU ends at once


class Measurement(NamedTuple):
    """One stage of a run, to be measured by this specification."""

    stage: Stage
    specification: dict


@dataclass(frozen=True)
class FinishedMeasurement:
    """The times of one complete measurement."""

    job_s: float  # of the whole job, minus the extra seconds that its stage declares
    steps_s: float
    steps_flops: int
    precision: str


@dataclass(frozen=True)
class Pace:
    """How fast this machine measures."""

    overhead_s: dict[str, float]  # by stage: of a job, without its steps and the extra seconds that the stage declares
    flop_per_s: dict[str, float]  # of the steps, by precision; a precision is absent if its rate is unknown
    source: str  # where these numbers are from, in words
    peaks: Peaks | None = None  # of the GPU, if known

    def steps_seconds(self, program: dict) -> float:
        """Seconds of the steps of a process; 0 if the pace is unknown."""
        rate = self.flop_per_s.get(program["dimensions"]["precision"])
        return steps_flops(program) / rate if rate else 0.0


def remaining_measurements(entries: list[dict], runs: Path) -> list[Measurement]:
    """The measurements of a plan that are missing or were made with other settings; `runs` is the folder of results."""
    measurements = []
    for entry in entries:
        for name, specification in entry["specifications"].items():
            stage = STAGE_BY_NAME[name]
            result = _usable_result(runs / entry["run"] / stage.result_file)
            if result is None or result.specification != specification:
                measurements.append(Measurement(stage, specification))
    return measurements


def expected_pace(
    runs: Path, start_s: float, device_name: str | None, precisions: Iterable[str], workload: Workload = MODEL_STEPS
) -> Pace:
    """The pace of earlier measurements below `runs` on this device. If a stage of every run has none, a process takes
    as long as the smoke capture (`start_s`), and its steps run at a share of the maker's peak."""
    stages = [stage for stage in STAGES if stage.workload is workload]
    finished_by_stage = {stage.name: list(_finished_measurements(runs, stage, device_name)) for stage in stages}
    peaks = peaks_of(device_name)
    peak_rates = {precision: peaks.flop_per_s(precision) for precision in precisions} if peaks else {}
    usual_rates = {precision: rate * USUAL_SHARE_OF_PEAK for precision, rate in peak_rates.items() if rate}
    # rates are taken only from the stages of every run: the others may slow steps down
    finished_lists = [finished_by_stage[stage.name] for stage in stages if stage.of_every_run]
    if all(finished_lists):
        undisturbed = list(chain.from_iterable(finished_lists))
        overhead_s = {name: _mean_overhead_s(finished or undisturbed) for name, finished in finished_by_stage.items()}
        source = f"from {sum(map(len, finished_by_stage.values()))} earlier measurements on this device"
        return Pace(overhead_s, usual_rates | _measured_rates(undisturbed), source, peaks)
    share = f", steps at {100 * USUAL_SHARE_OF_PEAK:.0f} % of the maker's peak"
    source = "start-ups as long as the smoke capture"
    source += share if usual_rates else "; without the steps, whose pace is not known yet"
    return Pace(dict.fromkeys(finished_by_stage, start_s), usual_rates, source, peaks)


def _mean_overhead_s(finished: list[FinishedMeasurement]) -> float:
    """The mean seconds of a job besides its steps."""
    return fmean(measurement.job_s - measurement.steps_s for measurement in finished)


def _measured_rates(finished: list[FinishedMeasurement]) -> dict[str, float]:
    """FLOP/s of the steps by precision, from runs with known FLOPs."""
    seconds, flops = Counter(), Counter()
    for measurement in finished:
        if measurement.steps_flops:
            seconds[measurement.precision] += measurement.steps_s
            flops[measurement.precision] += measurement.steps_flops
    return {precision: flops[precision] / steps_s for precision, steps_s in seconds.items() if steps_s}


def seconds_needed(
    measurements: list[Measurement], pace: Pace, memory_bytes: int | None, *, on_gpu: bool = True
) -> float:
    """Seconds for these measurements one after another. Of a run without enough memory, only the start counts; of a
    stage counters, nothing counts on a CPU."""
    return sum(
        _seconds_of(measurement, pace, memory_bytes)
        for measurement in measurements
        if on_gpu or measurement.stage is not COUNTERS
    )


def usual_seconds(measurement: Measurement) -> float:
    """Estimated seconds of one measurement on an H200. They only serve to order measurements, since all that is known
    of the machine is whether it has a GPU."""
    stage, specification = measurement
    if stage is COUNTERS and not gpu_is_visible():
        return UNSUPPORTED_S
    precision = specification["program"]["dimensions"]["precision"]
    peaks = peaks_of(USUAL_GPU)
    rate = USUAL_SHARE_OF_PEAK * (peaks.flop_per_s(precision) or 0.0)
    start_s = USUAL_START_S + (USUAL_END_S if stage.tables_of_a_run else 0.0)
    pace = Pace({stage.name: start_s}, {precision: rate}, USUAL_GPU, peaks)
    return _seconds_of(measurement, pace, memory_bytes=None)


def _seconds_of(measurement: Measurement, pace: Pace, memory_bytes: int | None) -> float:
    stage, specification = measurement
    program, start_s = specification["program"], pace.overhead_s[stage.name]
    if stage is OPERATOR:
        passes_s = operator_estimates.seconds(program, pace.peaks, memory_bytes)
        return start_s + passes_s + stage.extra_seconds(specification)
    if memory_bytes is not None and (needed_bytes(program) or 0) > memory_bytes:
        return start_s
    return start_s + pace.steps_seconds(program) + stage.extra_seconds(specification)


def needed_bytes_of_run(entry: dict) -> int | None:
    """Bytes of the tensors of a run of the plan, by the specification of its first stage; None if unknown."""
    name, specification = next(iter(entry["specifications"].items()))
    estimate = operator_estimates.needed_bytes if name == OPERATOR.name else needed_bytes
    return estimate(specification["program"])


def bytes_on_disk(measurements: list[Measurement]) -> int:
    """Bytes of the files of these measurements, without the part that grows with layers if their number is unknown."""
    total = 0
    for stage, specification in measurements:
        program = specification["program"]
        layers_and_steps = (layer_count(program) or 0) * program.get("measured_steps", 0)
        total += stage.disk_bytes + stage.disk_bytes_per_layer_and_step * layers_and_steps
    return total


def layer_count(program: dict) -> int | None:
    """The layers of the model; None if its sizes have other names."""
    count = program.get("sizes", {}).get("num_layers")
    return count if isinstance(count, int) else None


def first_program(entry: dict) -> dict:
    """The specification of the program of a run's first stage. Those of other stages differ only in their steps."""
    return next(iter(entry["specifications"].values()))["program"]


def steps_flops(program: dict) -> int:
    """FLOPs of the matrix products of all steps of a process, including recomputation; 0 for custom models."""
    if (shape := shape_of(program)) is None:
        return 0
    steps = program["warmup_steps"] + program["measured_steps"]
    flops = forward_flops(shape)["forward"]
    if BACKWARD in PHASES_OF_MODE[program["dimensions"]["mode"]]:
        recomputed = sum(recomputed_flops(shape, program["dimensions"]["checkpoint"]).values())
        flops = flops * (1 + BACKWARD_IN_FORWARDS) + recomputed
    return round(steps * flops)


def _finished_measurements(runs: Path, stage: Stage, device_name: str | None) -> Iterator[FinishedMeasurement]:
    """Every complete measurement of a stage on this device."""
    for path in sorted(runs.glob(f"*/{stage.result_file}")):
        result = _usable_result(path)
        if result and result.status == COMPLETE and result.program.machine.device_name == device_name:
            cost, spec = result.program.cost_seconds, result.program.spec
            steps_s = cost["warmup"] + cost["measured"]
            job_s = result.seconds["all"] - stage.extra_seconds(result.specification)
            yield FinishedMeasurement(job_s, steps_s, steps_flops(spec), spec["dimensions"]["precision"])


def _usable_result(path: Path) -> StageResult | None:
    try:
        return read_result(path)
    except BadResult:
        return None
