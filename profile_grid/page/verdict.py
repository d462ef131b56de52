"""The first statements of the page: how fast the step of the picture is, and what would shorten it."""

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.figures.drawing import Tables
from profile_grid.gpu_peaks import peaks_of
from profile_grid.quantities import known, percent, significant
from profile_grid.study.dimensions import BATCH_SIZE, DIMENSIONS, MODE, PRECISION
from profile_grid.tables.names import FORWARD, WHOLE_STEP
from profile_grid.tables.wording import capital, where

OF_VERDICT = ("runs", "timings", "findings")
MAX_ADVICE, MAX_VALUES = 3, 8
PASSES = 3  # of matrix multiplies in a training step: forward, and two in the backward pass


def speed(tables: Tables, run: str) -> str:
    """Time of a step of this run, tokens per second, and share of the GPU's peak, in Markdown."""
    row = tables["runs"].set_index("run", drop=False).loc[run].to_dict()
    timings = tables["timings"]
    timed = timings[(timings["run"] == run) & (timings["phase"] == WHOLE_STEP) & timings["mean_ms"].notna()]
    defaults = [escaped(fact.title(fact.default)) for fact in ALWAYS_NAMED if row[fact.key] == fact.default]
    name = f"A {MODE.name_of(row[MODE.key])} of {where(row)}" + (f" ({', '.join(defaults)})" if defaults else "")
    if timed.empty:
        return f"{name} was not timed without a profiler."
    seconds = timed["mean_ms"].iloc[0] / 1e3
    tokens = row[BATCH_SIZE.key] * row["context_length"] / seconds
    text = f"{name} takes **{significant(seconds * 1e3)} ms**: {tokens:,.0f} tokens per second"
    return f"{text}{_of_peak(row, seconds)}."


def _of_peak(row: dict, seconds: float) -> str:
    """The FLOP/s of the model's matrix multiplies in a step, as a share of the data sheet's peak."""
    peaks = peaks_of(row["device_name"])
    peak = peaks.flop_per_s(row[PRECISION.key]) if peaks else None
    if not peak or not known(row["forward_flops"]):
        return ""
    flops = row["forward_flops"] * (1 if row[MODE.key] == FORWARD else PASSES)
    precision = escaped(row[PRECISION.key])
    return f", {percent(flops / seconds / peak)} of the peak in {precision} (model FLOP utilization)"


def advice(tables: Tables, run: str) -> list[str]:
    """What would shorten the step of this run most, by its diagnosis, in Markdown; empty if nothing was diagnosed."""
    findings = tables["findings"]
    findings = findings[(findings["run"] == run) & ~findings["abstained"].astype(bool)].head(MAX_ADVICE)
    return [
        f"{escaped(capital(str(row.advice)))}: saves at most {significant(row.gain_percent)} % of the step"
        for row in findings.itertuples()
    ]


def scope(runs: pd.DataFrame) -> str:
    """The values of the dimensions of these runs, in Markdown: "model small, medium; context 512; batch 4; fp32"."""
    parts = []
    for dimension in DIMENSIONS:
        values = list(dict.fromkeys(runs[dimension.key].dropna()))
        if values and (dimension.default is None or values != [dimension.default] or dimension in ALWAYS_NAMED):
            names = ", ".join(escaped(dimension.name_of(value)) for value in values[:MAX_VALUES])
            more = f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
            parts.append(f"{dimension.heading} {names}{more}")
    return "; ".join(parts)


ALWAYS_NAMED = (BATCH_SIZE, PRECISION)
