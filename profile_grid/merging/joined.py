"""The tables of one kind of all runs, below one another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profile_grid.results.load_runs import MeasuredRun
from profile_grid.study.dimensions import LEADING
from profile_grid.tables.texts import encoded, repeated, with_categories


def joined_tables(runs: list[MeasuredRun], folder: Path, stage: str, name: str) -> pd.DataFrame:
    """The table `name` of every run whose `stage` has tables, each row led by its run; texts are categories."""
    tables = [(run, _read(folder / run.name / f"{name}.parquet")) for run in runs if run.has_tables(stage)]
    filled = [(run, table) for run, table in tables if table.num_rows]
    if not filled:
        filled = [(runs[0], _read(folder / runs[0].name / f"{name}.parquet").slice(0, 0))]
    joined = with_categories(pa.concat_tables([table for _, table in filled], promote_options="default"))
    rows = np.array([table.num_rows for _, table in filled])
    for position, key in enumerate(LEADING):
        joined.insert(position, key, repeated((run.leading[key] for run, _ in filled), rows))
    return joined


def _read(path: Path) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return encoded(file.read(use_threads=False))
