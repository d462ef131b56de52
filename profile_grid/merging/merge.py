"""The runs of a grid brought together: one table of each kind."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from profile_grid.largest.tables import largest_table
from profile_grid.merging.cost import cost_table
from profile_grid.merging.joined import joined_tables
from profile_grid.merging.run_overview import runs_table
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.study.catalogue import merged_of, workloads_of
from profile_grid.study.stage import Stage
from profile_grid.study.stages import STAGES
from profile_grid.tables.declared import declared_tables

LARGEST = "largest"  # the table, and the folder beside that of the runs


def merged_tables(runs: list[MeasuredRun], folder: Path) -> dict[str, pd.DataFrame]:
    """Every merged table by its name; `folder` holds the tables of each run, and the one
    beside it, largest, what bisections found to fit. Raises WrongTable where one is not as it is declared."""
    tables = {"runs": runs_table(runs)}
    workloads = workloads_of(tables["runs"].to_dict("records"))
    stages = [stage for stage in STAGES if stage.workload in workloads]
    for stage in stages:
        if stage.table_names:
            tables |= stage.load("tables").study_tables(runs)
    tables["cost"] = cost_table(runs)
    if LARGEST in merged_of(workloads):
        tables[LARGEST] = largest_table([run.entry for run in runs], folder.parent / LARGEST)
    for stage in stages:
        if stage.tables_of_a_run:
            tables |= _joined(stage, runs, folder)
    for name, table in tables.items():
        declared_tables()[name].check(table)
    return tables


def _joined(stage: Stage, runs: list[MeasuredRun], folder: Path) -> dict[str, pd.DataFrame]:
    """The tables that a stage gives of every run that was asked for it."""
    asked = [run for run in runs if stage.name in run.statuses]
    if asked:
        return {name: joined_tables(asked, folder, stage.name, name) for name in stage.tables_of_a_run.names}
    leading = pd.DataFrame([run.leading for run in runs]).iloc[:0]
    empty = stage.load("tables").empty_run_tables()
    return {name: pd.concat([leading, table], axis=1) for name, table in empty.items()}


def checkouts(runs: list[MeasuredRun]) -> list[dict]:
    """The git commit at which each process of each run was measured, and whether the tree was clean."""
    return [vars(result.git) for run in runs for result in run.results.values()]
