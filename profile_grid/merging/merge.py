"""The runs of a grid brought together: one table of each kind."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pandas as pd

from profile_grid.merging.cost import cost_table
from profile_grid.merging.joined import joined_tables
from profile_grid.merging.measured_runs import MeasuredRun
from profile_grid.merging.runs_table import runs_table
from profile_grid.study.stages import STAGES


def merged_tables(runs: list[MeasuredRun], folder: Path) -> dict[str, pd.DataFrame]:
    """Every merged table by its name; `folder` holds the tables of each run."""
    tables = {"runs": runs_table(runs)}
    for stage in STAGES:
        if stage.tables:
            module, _, function = stage.tables.partition(":")
            tables |= getattr(import_module(module), function)(runs)
    tables["cost"] = cost_table(runs)
    for stage in STAGES:
        if stage.tables_of_a_run:
            names = stage.tables_of_a_run.names
            tables |= {name: joined_tables(runs, folder, stage.name, name) for name in names}
    return tables


def checkouts(runs: list[MeasuredRun]) -> list[dict]:
    """The git commit at which each process of each run was measured, and whether the tree was clean."""
    return [vars(result.git) for run in runs for result in run.results.values()]
