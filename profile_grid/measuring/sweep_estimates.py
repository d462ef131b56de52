"""What an attention sweep will take of a machine, before it runs: time and memory of every row.

A row goes through its context lengths; a length whose tensors do not fit ends at once, as a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cs336_model.program.variants.values import EAGER, ELEMENT_BYTES, NOT_COMPILED
from profile_grid.gpu_peaks import Peaks, peaks_of
from profile_grid.measuring.sweep import Cell, RowResult, read_row
from profile_grid.results.results import BadResult
from profile_grid.study.stages import SWEEP

COMPILED = "compiled"
WRITTEN_OUT = (EAGER, "math", COMPILED)
FUSED_FORWARDS, FUSED_SHARE_OF_PEAK = 3.5, 0.25  # forward and backward; H200: flash in bf16 reaches so much
# An H200, widths 16 to 128, numbers of four and of two bytes: the bytes per score that the time of both passes would
# move at the peak bytes/s, and the most that are held at once: what is kept, and its gradients
BYTES_PER_SCORE = {EAGER: (290, 245), "math": (290, 245), COMPILED: (130, 40)}
HELD_PER_SCORE = {EAGER: (24, 24), "math": (24, 24), COMPILED: (12, 4)}
TENSORS = 10  # queries, keys, values, output, their gradients and copies: numbers per (token, width)
PASS_S, COMPILE_S = 1e-3, 4.0  # a forward and a backward pass of nothing but launches; compiling, per length


@dataclass(frozen=True)
class SweepPace:
    """How fast this machine sweeps: seconds of a process besides its passes, seconds per score of a forward and a
    backward pass by (variant, precision) where rows were measured, the peaks of the GPU, and the source."""

    start_s: float
    measured: Mapping[tuple[str, str], float]
    peaks: Peaks | None
    source: str

    def pass_seconds(self, dimensions: Mapping, scores: int) -> float | None:
        """Seconds of a forward and a backward pass with so many scores; None where no pace is known."""
        variant, precision = variant_of(dimensions), dimensions["precision"]
        if (variant, precision) in self.measured:
            return self.measured[variant, precision] * scores
        rate = self.peaks and self.peaks.flop_per_s(precision)
        if not rate:
            return None
        if variant in WRITTEN_OUT:
            return max(PASS_S, _by_precision(BYTES_PER_SCORE, dimensions) * scores / self.peaks.memory_bytes_per_s)
        flops = FUSED_FORWARDS * 2 * dimensions["head_dim"] * scores
        return max(PASS_S, flops / (FUSED_SHARE_OF_PEAK * rate))


def variant_of(dimensions: Mapping) -> str:
    """What the table calls the variant: attention, or compiled."""
    return COMPILED if dimensions["compile"] != NOT_COMPILED else dimensions["attention"]


def needed_by_row(rows: Iterable[Mapping]) -> dict[str, int]:
    """Bytes that the tensors of each row take at its longest context, by the row's name."""
    return {row["run"]: needed_bytes(row, max(row["context_lengths"])) for row in rows}


def needed_bytes(row: Mapping, context_length: int) -> int:
    """Bytes of the tensors of one cell at its fullest moment, in the backward pass: about so much."""
    numbers = TENSORS * row["batch_size"] * context_length * row["head_dim"]
    mask = context_length**2 if variant_of(row) in (EAGER, COMPILED) else 0
    held = _by_precision(HELD_PER_SCORE, row) * scores_of(row, context_length)
    return numbers * ELEMENT_BYTES[row["precision"]] + mask + held


def _by_precision(table: Mapping[str, tuple[int, int]], dimensions: Mapping) -> int:
    """The number of a variant that is written out; 0 for a fused one, which holds no scores."""
    of_four, of_two = table.get(variant_of(dimensions), (0, 0))
    return of_four if ELEMENT_BYTES[dimensions["precision"]] == 4 else of_two


def scores_of(dimensions: Mapping, context_length: int) -> int:
    """Scores of one operator."""
    return dimensions["batch_size"] * context_length**2


def remaining(rows: Iterable[Mapping], folder: Path) -> list[Mapping]:
    """The rows of the plan that are not there, or were measured with other settings."""
    measured = {path.parent.name: found for path, found in _results(folder)}
    return [
        row for row in rows if row["run"] not in measured or measured[row["run"]].specification != row["specification"]
    ]


def pace(folder: Path, start_s: float, device_name: str | None) -> SweepPace:
    """The pace of the rows below `folder` on this device; without any the smoke's `start_s` and the maker's peaks."""
    found = [row for _, row in _results(folder) if row.program.machine.device_name == device_name]
    if not found:
        known = peaks_of(device_name)
        steps = "passes by the maker's peaks" if known else "the passes come on top, their pace is not known yet"
        return SweepPace(start_s, {}, known, f"start-ups as long as the smoke's, {steps}")
    sums: dict[tuple[str, str], list[float]] = {}
    for row in found:
        dimensions = row.program.spec["dimensions"]
        sums_of_row = sums.setdefault((variant_of(dimensions), dimensions["precision"]), [0.0, 0.0])
        for cell in row.program.cells:
            sums_of_row[0] += _seconds(cell)
            sums_of_row[1] += len(cell.forward_seconds) * scores_of(dimensions, cell.context_length)
    rates = {key: seconds / scores for key, (seconds, scores) in sums.items() if scores}
    besides = sum(row.seconds["all"] - sum(map(_seconds, row.program.cells)) for row in found) / len(found)
    return SweepPace(besides, rates, peaks_of(device_name), f"from {len(found)} earlier rows on this device")


def _seconds(cell: Cell) -> float:
    return sum(cell.forward_seconds) + sum(cell.backward_seconds)


def seconds_needed(rows: Iterable[Mapping], pace: SweepPace, memory_bytes: int | None) -> tuple[float, bool]:
    """Seconds for these rows one after another, and whether that is all of it: not where a pace is not known."""
    total, whole = 0.0, True
    for row in rows:
        settings = row["specification"]["program"]
        passes = 1 + settings["warmup_passes"] + settings["measured_passes"]
        total += pace.start_s
        for length in row["context_lengths"]:
            if memory_bytes is not None and needed_bytes(row, length) > memory_bytes:
                continue
            seconds = pace.pass_seconds(row, scores_of(row, length))
            whole = whole and seconds is not None
            total += passes * (seconds or 0.0) + (COMPILE_S if variant_of(row) == COMPILED else 0.0)
    return total, whole


def _results(folder: Path) -> Iterator[tuple[Path, RowResult]]:
    """Every row that was measured and can be read."""
    for path in sorted(folder.glob(f"*/{SWEEP.result}")):
        try:
            yield path, read_row(path)
        except BadResult:
            continue
