"""The tables of (f): times beside those in fp32, by phase and by part of the model, and the relative errors."""

from __future__ import annotations

import pandas as pd

from cs336_model.program.variants.values import ELEMENT_BYTES
from kernel_tables.attribution.paths import PATH_SEPARATOR
from profile_grid.gpu_peaks import peaks_of
from profile_grid.study.described import PER_PASS, Described, Shown, SummaryTable, columns
from profile_grid.study.dimensions import LEADING, PRECISION
from profile_grid.tables.names import NO_RANGE
from profile_grid.tables.per_pass import Merged, numbers, per_pass, total_by_run
from profile_grid.tables.ratios import BESIDE_BASE, beside_base

ERRORS = ["loss_error", "logits_error", "gradient_norm_error", "explained_error", "within_precision", "reason"]


def precision_times(merged: Merged) -> pd.DataFrame:
    """(f) One row per run in a lower precision and phase: its time without a profiler beside that in fp32."""
    timings = merged["timings"][[*LEADING, "phase", "mean_ms", "std_ms"]]
    table = beside_base(timings, PRECISION, "mean_ms", "std_ms", by=["phase"])
    device = table["run"].map(merged["runs"].set_index("run")["device_name"])
    pairs = list(zip(device, table["precision"], strict=True))
    table["ideal_by_flops"] = [_peak_ratio(name, precision) for name, precision in pairs]
    table["ideal_by_bytes"] = [ELEMENT_BYTES[PRECISION.default] / ELEMENT_BYTES[precision] for _, precision in pairs]
    return table.astype({"ideal_by_flops": "float64", "ideal_by_bytes": "float64"})


def precision_parts(merged: Merged) -> pd.DataFrame:
    """(f) One row per run in a lower precision, phase and part of the model: its GPU time beside that in fp32."""
    kernels = merged.kernels
    kernels = kernels.assign(part=kernels["range"].fillna("").str.split(PATH_SEPARATOR).str[-1].replace("", NO_RANGE))
    times = per_pass(kernels, ["phase", "part"], merged.captured_steps)
    times["share"] = numbers(times["total_ns"]) / numbers(times["run"].map(total_by_run(kernels)))
    table = beside_base(times, PRECISION, "gpu_time_ms", "gpu_time_std_ms", by=["phase", "part"])
    shares = times.set_index(["run", "phase", "part"])["share"]
    at_base = pd.MultiIndex.from_frame(table[["base_run", "phase", "part"]])
    table["base_share"] = shares.reindex(at_base).to_numpy(dtype="float64")
    return table.drop(columns=["total_ns", "same_in_every_step"])


def precision_accuracy(merged: Merged) -> pd.DataFrame:
    """(f) One row per timed run: its relative errors against fp64, which are a precision's price."""
    return merged["accuracy"][[*LEADING, *ERRORS]].reset_index(drop=True)


def _peak_ratio(device_name: object, precision: str) -> float | None:
    """How much more than in fp32 the GPU can compute, by its data sheet; None where that is not known."""
    peaks = peaks_of(device_name if isinstance(device_name, str) else None)
    own, base = (peaks.flop_per_s(name) if peaks else None for name in (precision, PRECISION.default))
    return own / base if own and base else None


TABLES = {
    "precision_times": SummaryTable(
        precision_times,
        Described(
            "(f) One row per run in a lower precision and phase, from the processes without a profiler",
            columns(f"""
    phase | | step, or one phase of it
    mean_ms | ms | mean time in this precision
    std_ms | ms | its standard deviation (n − 1)
    base_mean_ms | ms | mean time in fp32
    base_std_ms | ms | its standard deviation
    {BESIDE_BASE}
    ideal_by_flops | | peak FLOP/s in this precision ÷ peak in fp32, by the maker; empty where that is not known
    ideal_by_bytes | | bytes of a number in fp32 ÷ in this precision
"""),
        ),
    ),
    "precision_parts": SummaryTable(
        precision_parts,
        Described(
            "(f) One row per run in a lower precision, phase and part of the model, from the captures",
            columns(f"""
    phase | | range directly inside step
    part | | innermost range that was open at the launch
    {PER_PASS}
    share | of 1 | of the GPU time of the step
    base_gpu_time_ms | ms | GPU time in fp32
    base_gpu_time_std_ms | ms | its standard deviation
    base_share | of 1 | of the GPU time of the step in fp32
    {BESIDE_BASE}
"""),
        ),
    ),
    "precision_accuracy": SummaryTable(
        precision_accuracy,
        Described(
            "(f) One row per timed run: its first step against an eager one in fp64",
            columns("""
    loss_error | | as in accuracy
    logits_error | | as in accuracy
    gradient_norm_error | | as in accuracy
    explained_error | | as in accuracy
    within_precision | | as in accuracy
    reason | | as in accuracy
"""),
        ),
    ),
}
SHOWN = {
    "precision_times": Shown("Time beside that in fp32", "precision_times"),
    "precision_parts": Shown("GPU time of each part beside that in fp32", "precision_parts"),
    "precision_accuracy": Shown("Relative errors against fp64", "precision_accuracy"),
}
