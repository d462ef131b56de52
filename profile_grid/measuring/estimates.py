"""What a grid will take of a machine, before it runs: time, disk and memory, and how each is estimated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cs336_model.arithmetic.flops import ModelShape, forward_flops
from profile_grid.gpu_peaks import peaks_of
from profile_grid.measuring.gpu_check import OWN_CONSTRUCTOR, needed_bytes
from profile_grid.measuring.results import BadResult, Capture, Timing, read_capture, read_timing

STAGES = ("timing", "capture")
AS_SMOKE = "start-ups as long as the smoke capture"
SIZES = ("vocab_size", "d_model", "num_layers", "num_heads", "d_ff")
FORWARDS_OF_MODE = {"forward": 1, "forward_backward": 3, "train_step": 3}  # a backward pass computes twice a forward
USUAL_SHARE_OF_PEAK = 0.6  # H200, fp32: 2.7B at context 1024 reaches 39.6 of 67 TFLOP/s
# nsys, H200: 3 training steps of 2.7B (32 layers) leave 3.8 MB of SQLite, and about as much of report
CAPTURE_BYTES = 500_000
CAPTURE_BYTES_PER_LAYER_AND_STEP = 80_000


@dataclass(frozen=True)
class Pace:
    """How fast this machine measures: seconds of one process besides its steps, FLOP/s of the steps, and the source."""

    overhead_s: dict[str, float]
    flop_per_s: float | None
    source: str


def remaining(plan: list[dict], runs: Path) -> list[tuple[str, dict]]:
    """(stage, specification of the program) of every measurement that is not there, or was made with other settings."""
    return [
        (stage, entry[f"{stage}_specification"]["program"])
        for entry in plan
        for stage in STAGES
        if not _is_measured(runs / entry["run"] / f"{stage}.json", stage, entry)
    ]


def _is_measured(path: Path, stage: str, entry: dict) -> bool:
    measured = _read(path, stage)
    return measured is not None and measured.specification == entry[f"{stage}_specification"]


def pace(runs: Path, start_s: float, device_name: str | None, precision: str) -> Pace:
    """The pace of the measurements below `runs` on this device; without any, that of the smoke capture and the maker's
    peak. `start_s`: the seconds that the smoke capture took."""
    finished = {stage: list(_finished(runs, stage, device_name)) for stage in STAGES}
    if all(finished.values()):
        overhead = {
            stage: sum(all_s - steps_s for all_s, steps_s, _ in rows) / len(rows) for stage, rows in finished.items()
        }
        rows = [row for rows in finished.values() for row in rows if row[2]]
        seconds, flops = sum(row[1] for row in rows), sum(row[2] for row in rows)
        rate = flops / seconds if seconds and flops else None
        return Pace(overhead, rate, f"from {sum(map(len, finished.values()))} earlier measurements on this device")
    overhead, peaks = dict.fromkeys(STAGES, start_s), peaks_of(device_name)
    peak = peaks.flop_per_s(precision) if peaks else None
    if peak is None:
        return Pace(
            overhead, None, "start-ups as long as the smoke capture; the steps come on top, their pace is not known yet"
        )
    return Pace(
        overhead,
        peak * USUAL_SHARE_OF_PEAK,
        "start-ups as long as the smoke capture, steps at 60 % of the maker's peak",
    )


def seconds_needed(measurements: list[tuple[str, dict]], pace: Pace, memory_bytes: int | None) -> float:
    """Seconds for these measurements one after another; one that will run out of memory costs its start."""
    return sum(
        pace.overhead_s[stage] + (0 if _too_large(program, memory_bytes) else _steps_seconds(program, pace))
        for stage, program in measurements
    )


def bytes_on_disk(measurements: list[tuple[str, dict]]) -> int:
    """Bytes that the captures will leave."""
    layers_and_steps = [
        program["constructor_args"]["num_layers"] * program["measured_steps"]
        for stage, program in measurements
        if stage == "capture"
    ]
    return sum(CAPTURE_BYTES + CAPTURE_BYTES_PER_LAYER_AND_STEP * count for count in layers_and_steps)


def largest(plan: list[dict]) -> tuple[str, int] | None:
    """The run that needs most memory and how many bytes its tensors take (cs336_model.arithmetic.memory, fp32: weights,
    gradients, two moments and what the backward pass needs); None where only other people's models run."""
    needs = [(entry["run"], needed_bytes(entry["timing_specification"]["program"])) for entry in plan]
    return max((need for need in needs if need[1]), key=lambda need: need[1], default=None)


def too_large(plan: list[dict], memory_bytes: int | None) -> list[str]:
    """The runs whose tensors alone do not fit."""
    return [entry["run"] for entry in plan if _too_large(entry["timing_specification"]["program"], memory_bytes)]


def steps_flops(program: dict) -> int:
    """FLOPs of the matrix products of all steps of a process; 0 for other people's models, whose layers are unknown."""
    if program["constructor"] != OWN_CONSTRUCTOR:
        return 0
    sizes = {
        name: program["constructor_args"][name] for name in ("vocab_size", "d_model", "num_layers", "num_heads", "d_ff")
    }
    shape = ModelShape(batch_size=program["batch_size"], context_length=program["context_length"], **sizes)
    steps = program["warmup_steps"] + program["measured_steps"]
    return steps * FORWARDS_OF_MODE[program["mode"]] * forward_flops(shape)["forward"]


def _steps_seconds(program: dict, pace: Pace) -> float:
    return steps_flops(program) / pace.flop_per_s if pace.flop_per_s else 0.0


def _too_large(program: dict, memory_bytes: int | None) -> bool:
    return memory_bytes is not None and (needed_bytes(program) or 0) > memory_bytes


def _finished(runs: Path, stage: str, device_name: str | None) -> Iterator[tuple[float, float, int]]:
    """(seconds in all, seconds of its steps, their FLOPs) of every complete measurement on this device."""
    for path in sorted(runs.glob(f"*/{stage}.json")):
        measured = _read(path, stage)
        if measured and measured.status == "complete" and measured.program.machine.device_name == device_name:
            cost = measured.program.cost_seconds
            yield measured.seconds["all"], cost["warmup"] + cost["measured"], steps_flops(measured.program.spec)


def _read(path: Path, stage: str) -> Timing | Capture | None:
    """An earlier result; None where it cannot be used: then it is not there for an estimate either."""
    try:
        return {"timing": read_timing, "capture": read_capture}[stage](path)
    except BadResult:
        return None
