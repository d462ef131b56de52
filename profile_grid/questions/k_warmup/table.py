"""The tables of (k): the means that would have been reported after fewer warm-up steps, and the number that is
enough."""

import numpy as np
import pandas as pd

from profile_grid.study.dimensions import LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.per_pass import Merged

TOLERANCE = 0.01  # of the mean; the tolerance of a run is STANDARD_ERRORS of its mean if these are larger
STANDARD_ERRORS = 2
KEY_COLUMNS = ["run", "phase"]


def warmup_reports(merged: Merged) -> pd.DataFrame:
    """(k) One row per run, phase and number of warm-up steps, up to those taken: mean and standard deviation of
    the steps that follow, as many as were measured, and the ratio of that mean to the one after all warm-up steps."""
    measured_ms = {key: times.tolist() for key, times in merged["steps"].groupby(KEY_COLUMNS, sort=False)["ms"]}
    rows = []
    for key, warmup in merged["warmup_steps"].groupby(KEY_COLUMNS, sort=False):
        later_ms = measured_ms.get(key)
        if not later_ms:
            continue  # memory ran out after the warm-up
        all_ms = warmup["ms"].tolist() + later_ms
        for left_out in range(len(warmup) + 1):
            reported = np.array(all_ms[left_out : left_out + len(later_ms)], dtype="float64")
            std = reported.std(ddof=1) if len(reported) > 1 else float("nan")
            rows.append((*warmup.iloc[0][[*LEADING, "phase"]], left_out, len(reported), reported.mean(), std))
    table = pd.DataFrame(rows, columns=[*LEADING, "phase", "warmup_steps", "n", "mean_ms", "std_ms"])
    mean_ms = table["mean_ms"].astype("float64")
    return table.assign(ratio=mean_ms / mean_ms.groupby([table[name] for name in KEY_COLUMNS]).transform("last"))


def warmup_enough(merged: Merged) -> pd.DataFrame:
    """(k) One row per run and phase: the times of its first step and of the measured steps, and how many warm-up steps
    are enough: with this number or more, every mean of `warmup_reports` is within the tolerance."""
    warmup = merged["warmup_steps"]
    first_ms = warmup[warmup["step"] == 0].set_index(KEY_COLUMNS)["ms"]
    rows = []
    for key, reports in warmup_reports(merged).groupby(KEY_COLUMNS, sort=False):
        last = reports.iloc[-1]  # after all warm-up steps
        error_ms = last["std_ms"] / last["n"] ** 0.5 if last["n"] > 1 else float("inf")  # one step says nothing
        tolerance = max(TOLERANCE, STANDARD_ERRORS * error_ms / last["mean_ms"])
        too_few = reports[(reports["ratio"] - 1).abs() > tolerance]["warmup_steps"]
        rows.append(last[[*LEADING, "phase"]].to_dict() | {
            "first_ms": first_ms[key], "measured_mean_ms": last["mean_ms"],
            "first_ratio": first_ms[key] / last["mean_ms"], "tolerance": tolerance,
            "taken": int(last["warmup_steps"]), "enough": int(too_few.max()) + 1 if len(too_few) else 0,
        })  # fmt: skip
    return pd.DataFrame(rows, columns=WARMUP_ENOUGH.all_names)


WARMUP_ENOUGH = TableSpec(
    "warmup_enough",
    "(k) One row per run and phase: its first step, and how many warm-up steps are enough",
    columns("""
    phase | text | | step, or one phase of it
    first_ms | float | ms | the very first step; a compiled model is compiled in an earlier step
    measured_mean_ms | float | ms | mean of the measured steps
    first_ratio | float | | first step ÷ that mean
    tolerance | float | of 1 | 1 %, or two standard errors of that mean if these are larger
    taken | int | | warm-up steps that were taken
    enough | int | | the fewest warm-up steps after which every mean is within the tolerance; unknown if that is \
        all steps taken
"""),
    make=warmup_enough,
)
TABLES = (
    TableSpec(
        "warmup_reports",
        "(k) One row per run, phase and number of warm-up steps: what would have been reported after that many",
        columns("""
    phase | text | | step, or one phase of it
    warmup_steps | int | | steps that are left out at the beginning
    n | int | | steps that follow and are reported: as many as were measured
    mean_ms | float | ms | their mean
    std_ms | float | ms | their standard deviation (n − 1)
    ratio | float | | mean ÷ the mean after all warm-up steps that were taken
"""),
        make=warmup_reports,
    ),
    WARMUP_ENOUGH,
)
PAGE_TABLES = (
    PageTable("warmup_reports", "What would have been reported after fewer warm-up steps"),
    PageTable("warmup_enough", "How many warm-up steps are enough"),
)
