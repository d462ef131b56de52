"""The results of a study of any size, made up from the tables of the example: for measuring how the analysis grows.

A made-up run has the tables of a run of the example in the same mode, with all nanoseconds multiplied by one small
whole number, so that what adds up there adds up here. The last model runs out of memory.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from functools import cached_property
from pathlib import Path

import pandas as pd

from benchmarks.made_grid import made_config
from cs336_model.program.loaded_files import digest_of_file
from profile_grid.measuring import results
from profile_grid.measuring.capture_identity import TABLE, identity
from profile_grid.study.dimensions import LEADING
from profile_grid.study.runs import grid_plan
from profile_grid.study.stages import CAPTURE, STAGES, Stage

ROOT = Path(__file__).parent.parent
EXAMPLE = ROOT / "docs" / "example-h200" / "tables"
FACTORS = 7  # the nanoseconds of a run are multiplied by 1 to 7
SOURCES = "0" * 16  # the digest of all that makes anything
MAKERS = {
    "results": {stage.name: SOURCES for stage in STAGES},
    "tables": {stage.name: SOURCES for stage in STAGES if stage.tables_of_a_run},
    "kernel_classes": SOURCES,
}
LOADED_FILES = {str(path.relative_to(ROOT)): digest_of_file(path) for path in sorted(ROOT.glob("cs336_model/**/*.py"))}
GIT = results.Checkout(git_commit="0" * 40, git_clean=True)
FACTS = {"backend": "nsys", "nsys": "2025.3.1.0", "host_hidden": True, "attempts": 1}
OUT_OF_MEMORY = results.OutOfMemory("initialise", requested_bytes=2**31, free_bytes=2**29, total_bytes=140 * 2**30)
COST = ("import", "context", "initialise", "warmup", "measured", "profiler")


def write_study(folder: Path, runs: int) -> None:
    """Writes FOLDER/grid.json and, for each of so many runs, FOLDER/runs/RUN with what its stages and tables leave."""
    plan = grid_plan(made_config(runs))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "grid.json").write_text(json.dumps(plan))
    example = Example(folder / "templates")
    models = list(dict.fromkeys(entry["model"] for entry in plan["runs"]))
    for number, entry in enumerate(plan["runs"]):
        fits = entry["model"] != models[-1]
        write_run(folder / "runs" / entry["run"], entry, example, number, fits)


def write_run(folder: Path, entry: dict, example: Example, number: int, fits: bool) -> None:
    """Writes the results, the status and the tables of one run."""
    like = example.run_like(entry["mode"], number)
    folder.mkdir(parents=True)
    status = results.COMPLETE if fits else results.OUT_OF_MEMORY
    for stage in STAGES:
        specification = entry["specifications"][stage.name]
        files = made_files(folder, stage, specification)
        result = stage_result(specification, files, example, like, status)
        (folder / stage.result).write_text(json.dumps(asdict(result), indent=1))
    of_run = CAPTURE.tables_of_a_run
    made_from = results.MadeFrom(specification, {name: one.sha256 for name, one in files.items()}, SOURCES, SOURCES)
    (folder / of_run.status_file).write_text(json.dumps(asdict(results.Status(status, None, [], made_from))))
    for name in of_run.names:
        made = example.table_file(name, like, number % FACTORS + 1) if fits else example.empty_file(name)
        os.link(made, folder / f"{name}.parquet")


def made_files(folder: Path, stage: Stage, specification: dict) -> dict[str, results.FileIdentity]:
    """The identities of the files of a stage, which hold nothing but the specification."""
    for name in stage.files:
        (folder / name).write_bytes(empty_capture(specification))
    return {name: results.FileIdentity(**identity(folder / name)) for name in stage.files}


def empty_capture(specification: dict) -> bytes:
    """A capture that holds nothing but its specification; SQLite itself would wait for the disk, 80 ms each."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE {TABLE} (specification TEXT NOT NULL)")
        database.execute(f"INSERT INTO {TABLE} VALUES (?)", (json.dumps(specification),))
        database.commit()
        return database.serialize()


def stage_result(specification: dict, files: dict, example: Example, like: str, status: str) -> results.StageResult:
    """What one stage of a run leaves: the times of the run of the example, under its own specification."""
    fits = status == results.COMPLETE
    program = program_result(specification["program"], example.runs.loc[like], example.seconds[like], fits)
    return results.StageResult(
        format=results.FORMAT, status=status, reason=None, reason_code=None, specification=specification,
        sources=SOURCES, program=program, facts=FACTS, files=files, seconds={"program": 8.0, "export": 0.3, "all": 9.0},
        waited_s=0.0, notes=[], started_utc="2026-01-02T03:04:05Z", git=GIT,
    )  # fmt: skip


def program_result(spec: dict, run: pd.Series, seconds: Mapping, fits: bool) -> results.ProgramResult:
    """What the measured program leaves, with as many steps as its specification asks for."""
    times = {phase: all_times[: spec["measured_steps"]] for phase, all_times in seconds.items()} if fits else {}
    machine = {name: run[name] for name in ("device", "device_name", "gpu_uuid_sha256", "driver", "cuda", "torch")}
    memory = (int(run[f"{name}_bytes"]) for name in ("peak_allocated", "peak_reserved", "device_total"))
    return results.ProgramResult(
        status=results.COMPLETE if fits else results.OUT_OF_MEMORY, spec=spec,
        out_of_memory=None if fits else OUT_OF_MEMORY, step_seconds=times.pop("step", []), phase_seconds=times,
        losses=[9.27, 9.27] if fits else [], memory=results.MemoryFacts(*memory), parameters=int(run["parameters"]),
        flops={"forward": int(run["forward_flops"])}, cost_seconds=dict.fromkeys(COST, 0.5), ran_unix_s=[1.0, 2.0],
        machine=results.MachineFacts(
            **machine, python=run["python"], cpu_name="Some CPU", cores=16, threads=16, sm_clock_mhz=1980,
            throttle_reasons=[], other_processes=0,
        ),
        loaded_files=LOADED_FILES,
    )  # fmt: skip


class Example:
    """The example's tables by run. A table of made-up runs is written once for all that have the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The complete runs by name."""
        runs = pd.read_parquet(EXAMPLE / "runs.parquet").set_index("run", drop=False)
        return runs[runs["capture_status"] == results.COMPLETE]

    @cached_property
    def seconds(self) -> dict[str, dict[str, list[float]]]:
        """Every timed step of each run by phase."""
        steps = pd.read_parquet(EXAMPLE / "steps.parquet")
        return {
            run: {phase: (times["ms"] / 1e3).tolist() for phase, times in rows.groupby("phase", sort=False)}
            for run, rows in steps.groupby("run", sort=False)
        }

    @cached_property
    def tables(self) -> dict[tuple[str, str], pd.DataFrame]:
        """The tables of each run, as they were before they were merged, by name and run."""
        found = {}
        for name in CAPTURE.tables_of_a_run.names:
            merged = pd.read_parquet(EXAMPLE / f"{name}.parquet")
            for run, rows in merged.groupby("run", sort=False):
                found[name, run] = rows.drop(columns=LEADING).reset_index(drop=True)
        return found

    def run_like(self, mode: str, number: int) -> str:
        """A run of the example in this mode."""
        names = self.runs.index[self.runs["mode"] == mode]
        return names[number % len(names)]

    def table_file(self, name: str, run: str, factor: int) -> Path:
        """A Parquet file with the rows of this run, the nanoseconds in them multiplied."""
        path = self.folder / f"{name}-{run}-{factor}.parquet"
        if not path.exists():
            table = self.tables[name, run]
            times = {column: table[column] * factor for column in table if column.endswith("_ns")}
            table.assign(**times).to_parquet(path, index=False)
        return path

    def empty_file(self, name: str) -> Path:
        """A Parquet file without rows."""
        path = self.folder / f"{name}.parquet"
        if not path.exists():
            columns = next(table.columns for (of, _), table in self.tables.items() if of == name)
            pd.DataFrame(columns=columns).to_parquet(path, index=False)
        return path
