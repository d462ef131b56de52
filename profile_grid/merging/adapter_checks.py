"""The table of the comparisons of students' code with the reference, of all runs with such code."""

from dataclasses import asdict

import pandas as pd

from profile_grid.results.load_runs import MeasuredRun
from profile_grid.study.table_spec import TableSpec, columns


def adapter_checks_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run, stage and check."""
    # the run's own precision, in `leading`, replaces that of the check under the same key
    rows = [
        {"stage": name, "check_precision": check.precision, **asdict(check), **run.leading}
        for run in runs
        for name, result in run.results.items()
        for check in (result.program.checks if result.program else ())
    ]
    return ADAPTER_CHECKS.table(rows)


ADAPTER_CHECKS = TableSpec(
    "adapter_checks",
    "One row per run, process and check of a student's code",
    columns("""
    stage | text | | name of the stage, whose process made the check
    implementation | text | | the student's implementation, such as own-triton
    case | text | | what was computed
    check_precision | text | | precision of the check
    quantity | text | | output or gradient
    error | float | | its relative error; empty if it is not finite
    tolerance | float | | largest error of a right implementation, from the unit roundoff of the precision
    verdict | text | | right, right as tf32 (in fp32: as exact as products in TF32), or wrong
"""),
)
TABLES = (ADAPTER_CHECKS,)
