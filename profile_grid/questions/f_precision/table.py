"""The tables of (f): times compared with fp32, by phase and by part of the model, and the relative errors."""

import pandas as pd

from cs336_model.arithmetic.memory import ELEMENT_BYTES
from profile_grid.gpu_peaks import peaks_of
from profile_grid.stages.timing.tables import ACCURACY
from profile_grid.study.dimensions import PRECISION
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables import per_pass, ratios


def precision_times(merged: per_pass.Merged) -> pd.DataFrame:
    """(f) One row per run in a lower precision and phase: times without a profiler in it and in fp32, ideal ratios."""
    table = ratios.times_with_base(merged, PRECISION)
    device = table["run"].map(merged["runs"].set_index("run")["device_name"])
    by_flops = [_peak_ratio(name, precision) for name, precision in zip(device, table["precision"], strict=True)]
    by_bytes = [ELEMENT_BYTES[PRECISION.default] / ELEMENT_BYTES[precision] for precision in table["precision"]]
    ideal_ratios = pd.DataFrame({"ideal_by_flops": by_flops, "ideal_by_bytes": by_bytes}, table.index, dtype="float64")
    return table.join(ideal_ratios)


def precision_parts(merged: per_pass.Merged) -> pd.DataFrame:
    """(f) One row per run in a lower precision, phase and part of the model: the part's GPU time, and that in fp32."""
    return ratios.parts_with_base(merged, PRECISION)


def _peak_ratio(device_name: object, precision: str) -> float | None:
    """Peak FLOP/s in this precision ÷ in fp32, by the data sheet; None if unknown."""
    peaks = peaks_of(device_name)
    if peaks is None:
        return None
    peak, base_peak = peaks.flop_per_s(precision), peaks.flop_per_s(PRECISION.default)
    return peak / base_peak if peak and base_peak else None


TABLES = (
    TableSpec(
        "precision_times",
        "(f) One row per run in a lower precision and phase, from the processes without a profiler",
        columns(
            ratios.TIMES_WITH_BASE,
            """
    ideal_by_flops | float | | peak FLOP/s in this precision ÷ peak in fp32, by the maker; empty if unknown
    ideal_by_bytes | float | | bytes of a number in fp32 ÷ bytes in this precision
""",
        ),
        make=precision_times,
    ),
    TableSpec(
        "precision_parts",
        "(f) One row per run in a lower precision, phase and part of the model, from the captures",
        ratios.PARTS_WITH_BASE,
        make=precision_parts,
    ),
    ACCURACY.copied(
        "precision_accuracy", "(f) One row per timed run: its first step compared with an eager one in fp64"
    ),
)
PAGE_TABLES = (
    PageTable("precision_times", "Times, compared with fp32"),
    PageTable("precision_parts", "GPU time of each part, compared with fp32"),
    PageTable("precision_accuracy", "Relative errors against fp64"),
)
