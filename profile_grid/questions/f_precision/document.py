"""What the document of (f) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import interval, ratio, significant
from profile_grid.study.dimensions import PRECISION
from profile_grid.tables import ratio_tables
from profile_grid.tables.accuracy import errors_table
from profile_grid.tables.apart import sorted_values
from profile_grid.tables.classes import NON_TRIVIAL_SHARE
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, NO_RANGE
from profile_grid.tables.ratio_sentences import gain_sentences
from profile_grid.tables.wording import listed, places

NO_PAIR = "Not answered: no two timed runs differ in precision alone, with fp32 as one of them."


def sentences(measured: Measured) -> list[str]:
    """(f) Speed-ups of whole steps, of phases and of parts in each precision, the ideal ones, and the errors."""
    times = measured.tables["precision_times"]
    if times.empty:
        return [NO_PAIR, *_accuracy(measured)]
    found = []
    for precision in sorted_values(times, PRECISION.key):
        own = times[times["precision"] == precision]
        base = PRECISION.words(PRECISION.default)
        found += [*gain_sentences(own, PRECISION, base), *_parts(measured, precision), *_ideal(own)]
    return [*found, *_accuracy(measured)]


def _parts(measured: Measured, precision: str) -> list[str]:
    """The parts of the forward pass that gain most and least, of those that take time in fp32."""
    parts = measured.tables["precision_parts"]
    own = parts[(parts["precision"] == precision) & (parts["phase"] == FORWARD) & (parts["part"] != NO_RANGE)]
    own = own[own["base_share"] >= NON_TRIVIAL_SHARE]
    if own["part"].nunique() < 2:
        return []
    middle = own.groupby("part", sort=False)["speed_up"].median()
    told = []
    for part, verb in ((middle.idxmax(), "gains the most"), (middle.idxmin(), "the least")):
        rows = own[own["part"] == part]
        told.append(f"{part} {verb} ({interval(rows['speed_up'], ratio)})")
    return [f"Of the parts of the forward pass by {measured.words.time}, {listed(told)}."]


def _ideal(own: pd.DataFrame) -> list[str]:
    """What the data sheet and the bytes would give at most."""
    by_flops, by_bytes = own["ideal_by_flops"].dropna(), own["ideal_by_bytes"]
    if by_flops.empty:
        return []
    return [
        f"Ideal would be {interval(by_flops, ratio)} where arithmetic limits (peak FLOP/s), and"
        f" {interval(by_bytes, ratio)} where memory does (bytes of a number)."
    ]


def _accuracy(measured: Measured) -> list[str]:
    """How far the logits are off in each precision, and which runs are further off than that explains."""
    rows = measured.tables["precision_accuracy"]
    known = rows[rows["logits_error"].notna()]
    if known.empty:
        return ["No run was held against one in fp64, so the accuracy is not known."]
    told = [
        f"{interval(known[known['precision'] == name]['logits_error'], _error)} in {name}"
        for name in sorted_values(known, PRECISION.key)
    ]
    found = [
        f"Against an eager run in fp64 with the same weights, the logits of the first step are off by {listed(told)}."
    ]
    off = known[~known["within_precision"].astype("bool")]
    verdict = "rounding explains all of it" if off.empty else f"rounding does not explain that of {places(off)}"
    return [*found, f"With a unit roundoff of 2⁻²⁴ in fp32, 2⁻¹¹ in tf32 and 2⁻⁸ in bf16, {verdict}."]


def _error(value: float) -> str:
    return f"{significant(100 * value, 2)} %" if value >= 1e-4 else f"{value:.1e}"


def steps_table(measured: Measured) -> MarkdownTable | None:
    """(f) One line per configuration: its step in fp32, then its time and speed-up in each other precision."""
    return ratio_tables.steps_table(measured.tables["precision_times"], PRECISION)


def phases_table(measured: Measured) -> MarkdownTable | None:
    """(f) One line per configuration with a backward pass and precision: the speed-up of each phase."""
    return ratio_tables.phases_table(measured.tables["precision_times"], PRECISION)


def parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(f) Speed-up of the GPU time of each part of the forward pass, with the title of each table."""
    rows = measured.mode("precision_parts", measured.inference_mode)
    return ratio_tables.parts_tables(rows[rows["phase"] == FORWARD])


def accuracy_table(measured: Measured) -> MarkdownTable | None:
    """(f) One line per timed run: its relative errors, what its precision explains, and whether that is enough; None
    where no run has errors."""
    return errors_table(measured.tables["precision_accuracy"], (*ratio_tables.ALWAYS, PRECISION.key))
