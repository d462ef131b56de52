"""Generates results of a study of any size from the tables of the example, to measure how the analysis scales.

A generated run has the tables of a run of the example in the same mode, with all nanoseconds multiplied by one small
whole number, so that what adds up there adds up here. The last model runs out of memory.
"""

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path

import pandas as pd

from benchmarks.harness import ROOT, made_config, run
from cs336_model.arguments import values_by_name
from cs336_model.arithmetic.flops import ModelShape, forward_flops
from cs336_model.program.code_digest import code_digest
from docs.examples import WHOLE
from profile_grid.results.capture_identity import TABLE, identity
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, Status
from profile_grid.study.catalogue import TABLES_OF_A_RUN
from profile_grid.study.dimensions import LEADING
from profile_grid.study.runs import grid_plan
from profile_grid.study.stage import Stage
from profile_grid.study.stages import BY_NAME, STAGES
from tests.profile_grid.made_up_results import CAPTURE, MACHINE, TIMING, changed

FACTORS = 7  # the nanoseconds of a run are multiplied by 1 to 7
RECORDS = {"timing": TIMING, "capture": CAPTURE}
MAKER = "0" * 16  # the digest of whatever measured something
SOURCES = {stage.name: MAKER for stage in STAGES}
LOADED_FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): {
        "root": "project",
        "path": str(path.relative_to(ROOT)),
        "digest": code_digest(path.read_bytes()),
    }
    for path in sorted(ROOT.glob("cs336_model/**/*.py"))
}
H200 = MACHINE | {"device": "cuda", "device_name": "NVIDIA H200", "driver": "580.82", "cuda": "13.0"}
NSYS = CAPTURE["facts"] | {"backend": "nsys", "nsys": "2025.3.1"}
NO_MEMORY = {"during": "initialise", "requested_bytes": 2**31, "free_bytes": 2**29, "total_bytes": 140 * 2**30}


def write_study(folder: Path, runs: int) -> None:
    """Writes FOLDER/grid.json, FOLDER/sources.json (the digests for the merge) and, for that many runs, FOLDER/runs/RUN
    with the results of its stages and tables."""
    plan = grid_plan(made_config(runs))
    folder.mkdir(parents=True)
    (folder / "grid.json").write_text(json.dumps(plan))
    (folder / "sources.json").write_text(json.dumps(SOURCES))
    example = ExampleRuns(folder / "templates")
    last = plan["runs"][-1]["model"]
    for number, entry in enumerate(plan["runs"]):
        write_run(folder / "runs" / entry["run"], entry, example, number, fits=entry["model"] != last)


class ExampleRuns:
    """The complete runs of the example. A table is written into `folder` once for all made-up runs that have it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.merged = folder, WHOLE.merged()
        self.folder.mkdir()
        runs = self.merged["runs"].set_index("run")
        self.modes = runs.loc[runs["capture_status"] == COMPLETE, "mode"]

    @cached_property
    def seconds(self) -> dict[str, dict[str, list[float]]]:
        """Every timed step of each run by phase."""
        return {
            run: {phase: (times["ms"] / 1e3).tolist() for phase, times in rows.groupby("phase", sort=False)}
            for run, rows in self.merged["steps"].groupby("run", sort=False)
        }

    @cached_property
    def tables(self) -> dict[tuple[str, str], pd.DataFrame]:
        """The tables by name and run, as they were before they were merged."""
        tables = {}
        for name in TABLES_OF_A_RUN:
            rows_by_run = dict(iter(self.merged[name].groupby("run", sort=False, observed=True)))
            for run_name in self.modes.index:  # also those without rows in a table
                rows = rows_by_run.get(run_name, self.merged[name][:0])
                tables[name, run_name] = rows.drop(columns=LEADING).reset_index(drop=True)
        return tables

    def run_like(self, mode: str, number: int) -> str:
        """The run of the example whose numbers the made-up run of this number has."""
        names = self.modes.index[self.modes == mode]
        return names[number % len(names)]

    def table_file(self, name: str, run: str, number: int, filled: bool) -> Path:
        """A Parquet file with the rows of `run` for the made-up run of this number, or without rows."""
        factor = number % FACTORS + 1 if filled else 0
        path = self.folder / f"{name}-{run}-{factor}.parquet"
        if not path.exists():
            table = self.tables[name, run] if filled else pd.DataFrame(columns=self.tables[name, run].columns)
            times = {column: table[column] * factor for column in table if column.endswith("_ns")}
            table.assign(**times).to_parquet(path, index=False)
        return path


def write_run(folder: Path, entry: dict, example: ExampleRuns, number: int, fits: bool) -> None:
    """Writes the results, the status and the tables of one run."""
    folder.mkdir(parents=True)
    like = example.run_like(entry["mode"], number)
    for stage in map(BY_NAME.get, entry["specifications"]):
        specification = entry["specifications"][stage.name]
        for name in stage.files:
            (folder / name).write_bytes(empty_capture(specification))
        files = {name: identity(folder / name) for name in stage.files}
        record = stage_record(stage, specification, files, example.seconds[like] if fits else None)
        (folder / stage.result).write_text(json.dumps(record, indent=1))
        if run_tables := stage.tables_of_a_run:
            (folder / run_tables.status_file).write_text(json.dumps(asdict(Status(record["status"], None, []))))
            for name in run_tables.names:
                os.link(example.table_file(name, like, number, fits), folder / f"{name}.parquet")


def stage_record(stage: Stage, specification: dict, files: dict, seconds: dict[str, list[float]] | None) -> dict:
    """The result of one stage of a run; its program ran out of memory if there are no seconds."""
    program = specification["program"]
    arguments = values_by_name(program)
    shape = ModelShape(**{field.name: arguments[field.name] for field in fields(ModelShape)})
    times = {phase: phase_s[: program["measured_steps"]] for phase, phase_s in (seconds or {}).items()}
    status = COMPLETE if times else OUT_OF_MEMORY
    return changed(
        RECORDS[stage.name],
        status=status, specification=specification, files=files, sources=MAKER, facts=NSYS,
        program__machine=H200, program__flops=forward_flops(shape),
        program__status=status, program__spec=program, program__loaded__modules=LOADED_FILES,
        program__out_of_memory=None if times else NO_MEMORY, program__losses=[9.27] if times else [],
        program__step_seconds=times.pop("step", []), program__phase_seconds=times,
        program__warmup_seconds=[0.1] * (program["warmup_steps"] if status == COMPLETE else 0),
        program__warmup_phase_seconds={},
    )  # fmt: skip


def empty_capture(specification: dict) -> bytes:
    """A capture with nothing but its specification, made in memory: on disk, SQLite waits 80 ms for each."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE {TABLE} (specification TEXT NOT NULL)")
        database.execute(f"INSERT INTO {TABLE} VALUES (?)", (json.dumps(specification),))
        database.commit()
        return database.serialize()


if __name__ == "__main__":
    run(write_study)
