"""One table of each kind for all runs of a grid."""

import hashlib
import json
from importlib import metadata
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profile_grid.checkout import git_state
from profile_grid.merging import cost, run_overview
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.study import catalogue, dimensions
from profile_grid.study.stage import Stage
from profile_grid.study.stages import NOT_ASKED, STAGES
from profile_grid.tables import on_disk, texts


def merged_tables(runs: list[MeasuredRun], folder: Path) -> dict[str, pd.DataFrame]:
    """Every merged table by name. `folder` has the tables of each run. Raises WrongTable if a table differs from its
    declaration."""
    tables = {"runs": run_overview.runs_table(runs)}
    workloads = catalogue.workloads_of(tables["runs"].to_dict("records"))
    stages = [stage for stage in STAGES if stage.workload in workloads]
    for stage in stages:
        if stage.table_names:
            tables |= stage.load("tables").study_tables(runs)
    tables["cost"] = cost.cost_table(runs)
    for stage in stages:
        if stage.tables_of_a_run:
            tables |= _joined_by_name(stage, runs, folder)
    for name, table in tables.items():
        on_disk.declared_tables()[name].check(table)
    return tables


def _joined_by_name(stage: Stage, runs: list[MeasuredRun], folder: Path) -> dict[str, pd.DataFrame]:
    """The joined tables of a stage for all runs for which it was requested."""
    names = stage.tables_of_a_run.names
    if requested_runs := [run for run in runs if stage.name in run.statuses]:
        return {name: joined_tables(requested_runs, folder, stage.name, name) for name in names}
    no_rows = pd.DataFrame([run.leading for run in runs]).iloc[:0]
    # the stage was requested for no run, so there is no file that has the columns
    return {name: pd.concat([no_rows, on_disk.declared_tables()[name].empty()], axis=1) for name in names}


def joined_tables(runs: list[MeasuredRun], folder: Path, stage: str, name: str) -> pd.DataFrame:
    """One table from the tables `name` of all runs whose `stage` has tables. Each row begins with the dimensions of its
    run; columns of texts are categorical."""
    tables = [(run, _read_table(folder / run.name / f"{name}.parquet")) for run in runs if run.may_have_rows(stage)]
    with_rows = [(run, table) for run, table in tables if table.num_rows]
    if not with_rows:  # any table has the columns
        with_rows = [(runs[0], _read_table(folder / runs[0].name / f"{name}.parquet").slice(0, 0))]
    joined = texts.with_categories(pa.concat_tables([table for _, table in with_rows], promote_options="default"))
    row_counts = np.array([table.num_rows for _, table in with_rows])
    for position, key in enumerate(dimensions.LEADING):
        joined.insert(position, key, texts.repeated_column((run.leading[key] for run, _ in with_rows), row_counts))
    return joined


def _read_table(path: Path) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return texts.dictionary_encoded(file.read(use_threads=False))


def checkouts(runs: list[MeasuredRun]) -> list[dict]:
    """For each result of each run, its `git_commit`, and whether the tree was `git_clean`."""
    return [vars(result.git) for run in runs for result in run.results.values()]


def provenance(runs: pd.DataFrame, plan: dict, checkouts: list[dict]) -> dict:
    """The provenance at the end of every document. A value is a list if runs differ, and None if it is unknown."""
    stages = [stage for stage in STAGES if (runs[stage.status_column] != NOT_ASKED).any()]
    started_utc = pd.concat([runs[f"{stage.name}_started_utc"] for stage in stages]).dropna()
    counts = runs[[stage.status_column for stage in stages]].agg(" / ".join, axis=1).value_counts()
    return {
        "runs": len(runs),
        "stages": " / ".join(stage.name for stage in stages),
        "statuses": {statuses: int(count) for statuses, count in counts.items()},  # "complete / failed": 2
        # the device's name says what the device is
        **{key: _common_value(runs[key]) for key in dimensions.MACHINE_KEYS if key != "device"},
        "snakemake": metadata.version("snakemake"),
        "measured_git_commit": _common_value(pd.Series([_commit(checkout) for checkout in checkouts], dtype="object")),
        **git_state(),
        "first_run_utc": started_utc.min(),
        "last_run_utc": started_utc.max(),
        "config_sha256": hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest(),
    }


def _commit(checkout: dict) -> str | None:
    commit = checkout["git_commit"]
    return commit if commit is None or checkout["git_clean"] else f"{commit} with changes"


def _common_value(values: pd.Series) -> str | list[str] | None:
    distinct = sorted(str(value) for value in values.dropna().unique())
    return distinct[0] if len(distinct) == 1 else (distinct or None)
