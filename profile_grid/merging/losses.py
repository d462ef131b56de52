"""The loss of every step of a timed run: what shows that two runs computed the same."""

from __future__ import annotations

import pandas as pd

from profile_grid.merging.measured_runs import MeasuredRun
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import TableSpec, columns


def losses_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per run that was timed whole, and loss."""
    rows = [
        run.leading | {"number": number, "loss": loss}
        for run in runs
        if run.complete(TIMING.name)
        for number, loss in enumerate(run.results[TIMING.name].program.losses)
    ]
    return pd.DataFrame(rows, columns=LOSSES.all_names)


LOSSES = TableSpec(
    "losses",
    "One row per run and loss of the process without a profiler, that of the whole batch where GPUs share it",
    columns("""
    number | int | | from 0: steps in their order, warm-up first; in mode forward that of one pass of its own
    loss | float | nats | mean cross-entropy
"""),
)
TABLES = (LOSSES,)
