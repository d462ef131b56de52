"""The results of one side of a comparison. They are in a folder with tables, or with only the plan and the timings, and
may include the times of further processes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from profile_grid.errors import OutsideError
from profile_grid.merging.merge import checkouts, provenance
from profile_grid.merging.run_overview import runs_table
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import StageStatus, read_result
from profile_grid.stages.timing.tables import steps_table, times_by_phase
from profile_grid.study import catalogue, dimensions, workloads
from profile_grid.study.stages import NOT_ASKED, STAGES, TIMING
from profile_grid.tables import names, on_disk, ratios

PLAN = "grid.json"


def timed_tables(folder: Path) -> tuple[dict[str, pd.DataFrame], dict]:
    """(tables, provenance) of a folder without tables, from grid.json and the timing of each run. The tables are
    `runs`, `steps`, and `kernels` without rows. Raises BadResult if a timing is missing."""
    plan = json.loads((folder / PLAN).read_text())
    runs = [_timed_run(entry, folder / "runs" / entry["run"]) for entry in plan["runs"]]
    kernels = pd.DataFrame(columns=on_disk.COLUMNS_FOR_SUMS["kernels"])
    tables = {"runs": runs_table(runs), "steps": steps_table(runs, times_by_phase), "kernels": kernels}
    return tables, provenance(tables["runs"], plan, checkouts(runs))


def _timed_run(entry: dict, folder: Path) -> MeasuredRun:
    result = read_result(folder / TIMING.result_file)
    return MeasuredRun(entry, {TIMING.name: result}, {TIMING.name: StageStatus(result.status, result.reason, [])})


FURTHER_PROCESSES = Path("processes", "steps.parquet")
NEEDED_TABLES = ("runs", "steps", "kernels")
RUN_DEFAULTS = {dimension.key: dimension.default for dimension in dimensions.DIMENSIONS} | {
    stage.status_column: NOT_ASKED for stage in STAGES
}


@dataclass(frozen=True)
class Results:
    """One side of a comparison."""

    folder: Path
    tables: Mapping[str, pd.DataFrame]
    provenance: dict
    # By the name of a run in the comparison, its name in the tables: two runs of one study that differ in a dimension
    # are compared under one name. None: all names are the same.
    table_names: Mapping[str, str] | None = None

    @cached_property
    def runs(self) -> dict[str, dict]:
        """The row of every run in the table `runs`, by name. Results of an earlier version lack columns of dimensions,
        which were at their defaults, and of stages, which were not requested."""
        rows = {row["run"]: RUN_DEFAULTS | row for row in self.tables["runs"].to_dict("records")}
        if self.table_names is None:
            return rows
        return {name: rows[table_name] for name, table_name in self.table_names.items()}

    @cached_property
    def steps(self) -> pd.DataFrame:
        """The time of every step: run, process (from 1), step, ms."""
        steps, further = self.tables["steps"].assign(process=1), self.folder / FURTHER_PROCESSES
        if further.exists():
            steps = pd.concat([steps, pd.read_parquet(further)])
        return steps.loc[steps["phase"] == names.WHOLE_STEP, ["run", "process", "step", "ms"]]

    def times_ms(self, run: str) -> np.ndarray:
        """The times of a run: a row per process, a column per step that all processes have."""
        run_steps = self.steps[self.steps["run"] == self.table_name(run)]
        rows = [steps.sort_values("step")["ms"].to_numpy("float64") for _, steps in run_steps.groupby("process")]
        step_count = min(map(len, rows), default=0)
        return np.array([times[:step_count] for times in rows]).reshape(len(rows), step_count)

    def kernels(self, run: str) -> pd.DataFrame:
        """The kernels of the measured steps of a run."""
        kernels = self.tables["kernels"]
        return kernels[(kernels["run"] == self.table_name(run)) & (kernels["step"] >= 0)]

    def table_name(self, run: str) -> str:
        """The name in the tables of a run of this side."""
        return run if self.table_names is None else self.table_names[run]


def sides_of_study(results: Results, dimension: dimensions.Dimension) -> tuple[Results, Results]:
    """The two sides (before, after) of a comparison within one study: the runs at the dimension's default, and the runs
    that differ from them only in this dimension. Raises OutsideError if there is no such pair, or no default."""
    if dimension.default is None:
        keys = ", ".join(other.key for other in dimensions.DIMENSIONS if other.default is not None)
        raise OutsideError(f"varies={dimension.key}: there is no default to compare with; name one of {keys}")
    pairs = ratios.base_pairs(pd.DataFrame(results.runs.values()), dimension)
    if pairs.empty:
        raise OutsideError(
            f"{results.folder}: no two runs differ only in {dimension.key}, with one of them at {dimension.default}"
        )
    before = dict(zip(pairs["run"], pairs["base_run"], strict=True))  # both sides have the names of the runs after
    return replace(results, table_names=before), replace(results, table_names={name: name for name in before})


def read_results(folder: Path) -> Results:
    """The results in a folder, even with timings alone. Raises OutsideError if none are of the steps of a model."""
    tables = on_disk.TablesOnDisk(folder / "tables")
    if not len(tables) and (folder / PLAN).exists():
        return Results(folder, *timed_tables(folder))
    if "runs" in tables and workloads.MODEL_STEPS not in catalogue.workloads_of(tables["runs"].to_dict("records")):
        raise OutsideError(f"{folder}: its runs have no steps to compare; name the results of a grid of models")
    provenance_path = folder / "tables" / "provenance.json"
    missing = [f"{name}.parquet" for name in NEEDED_TABLES if name not in tables]
    missing += [] if provenance_path.exists() else [provenance_path.name]
    if missing:
        raise OutsideError(
            f"{folder}: no tables/{missing[0]}; name a folder of results made by Snakemake, or a copy of one"
        )
    return Results(folder, tables, _read_json(provenance_path))


def _read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise OutsideError(f"{path} is not JSON ({error}); copy the results again") from error
