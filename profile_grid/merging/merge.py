"""The tables of all runs of a grid, merged: one of each kind."""

import hashlib
import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profile_grid.checkout import git_state
from profile_grid.largest.tables import largest_table
from profile_grid.merging import adapter_checks, cost, run_overview
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.study import catalogue, dimensions
from profile_grid.study.stage import Stage
from profile_grid.study.stages import NOT_ASKED, STAGES
from profile_grid.tables import on_disk, texts

LARGEST = "largest"  # the table, and the folder next to that of the runs
LEFT_OUT = ("device",)  # the device's name implies it


def joined_tables(runs: list[MeasuredRun], folder: Path, stage: str, name: str) -> pd.DataFrame:
    """The tables `name` of all runs whose `stage` has tables as one, each row with its run; texts are categories."""
    tables = [(run, _read(folder / run.name / f"{name}.parquet")) for run in runs if run.has_tables(stage)]
    filled = [(run, table) for run, table in tables if table.num_rows]
    if not filled:
        filled = [(runs[0], _read(folder / runs[0].name / f"{name}.parquet").slice(0, 0))]
    joined = texts.with_categories(pa.concat_tables([table for _, table in filled], promote_options="default"))
    rows = np.array([table.num_rows for _, table in filled])
    for position, key in enumerate(dimensions.LEADING):
        joined.insert(position, key, texts.repeated_column((run.leading[key] for run, _ in filled), rows))
    return joined


def _read(path: Path) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return texts.dictionary_encoded(file.read(use_threads=False))


def merged_tables(runs: list[MeasuredRun], folder: Path) -> dict[str, pd.DataFrame]:
    """Every merged table by its name; `folder` has the tables of each run, and the folder `largest` next to it the
    results of bisections. Raises WrongTable if a table differs from its declaration."""
    tables = {"runs": run_overview.runs_table(runs)}
    workloads = catalogue.workloads_of(tables["runs"].to_dict("records"))
    stages = [stage for stage in STAGES if stage.workload in workloads]
    for stage in stages:
        if stage.table_names:
            tables |= stage.load("tables").study_tables(runs)
    tables |= {"adapter_checks": adapter_checks.adapter_checks_table(runs), "cost": cost.cost_table(runs)}
    if LARGEST in catalogue.merged_of(workloads):
        tables[LARGEST] = largest_table([run.entry for run in runs], folder.parent / LARGEST)
    for stage in stages:
        if stage.tables_of_a_run:
            tables |= _joined(stage, runs, folder)
    for name, table in tables.items():
        on_disk.declared_tables()[name].check(table)
    return tables


def _joined(stage: Stage, runs: list[MeasuredRun], folder: Path) -> dict[str, pd.DataFrame]:
    """The tables of a stage of all runs for which it was requested."""
    requested = [run for run in runs if stage.name in run.statuses]
    if requested:
        return {name: joined_tables(requested, folder, stage.name, name) for name in stage.tables_of_a_run.names}
    leading = pd.DataFrame([run.leading for run in runs]).iloc[:0]
    names = stage.tables_of_a_run.names
    return {name: pd.concat([leading, on_disk.declared_tables()[name].empty()], axis=1) for name in names}


def checkouts(runs: list[MeasuredRun]) -> list[dict]:
    """The git commit at which each process of each run was measured, and whether the tree was clean."""
    return [vars(result.git) for run in runs for result in run.results.values()]


def provenance(runs: pd.DataFrame, plan: dict, checkouts: list[dict]) -> dict:
    """The provenance at the end of every document; a value is a list if runs differ, and None if unknown."""
    requested = [stage for stage in STAGES if (runs[stage.status_column] != NOT_ASKED).any()]
    started = pd.concat([runs[f"{stage.name}_started_utc"] for stage in requested]).dropna()
    statuses = runs[[stage.status_column for stage in requested]].agg(" / ".join, axis=1).value_counts()
    return {
        "runs": len(runs),
        "stages": " / ".join(stage.name for stage in requested),
        "statuses": {name: int(count) for name, count in statuses.items()},
        **{key: _agreed(runs[key]) for key in dimensions.MACHINE_KEYS if key not in LEFT_OUT},
        "snakemake": metadata.version("snakemake"),
        "measured_git_commit": _agreed(pd.Series([_commit(checkout) for checkout in checkouts], dtype="object")),
        **git_state(),
        "first_run_utc": started.min(),
        "last_run_utc": started.max(),
        "config_sha256": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest(),
    }


def _commit(checkout: dict) -> str | None:
    commit = checkout["git_commit"]
    return commit if commit is None or checkout["git_clean"] else f"{commit} with changes"


def _agreed(values: pd.Series):
    distinct = sorted(str(value) for value in values.dropna().unique())
    return distinct[0] if len(distinct) == 1 else (distinct or None)
