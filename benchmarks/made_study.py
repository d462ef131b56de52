"""The results of a study of any size, made up from the tables of the example: for measuring how the analysis grows.

A made-up run has the tables of a run of the example in the same mode, with all nanoseconds multiplied by one small
whole number, so that what adds up there adds up here. The last model runs out of memory.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import asdict, fields
from pathlib import Path

from benchmarks.example_runs import ExampleRuns
from benchmarks.made_grid import made_config
from cs336_model.arguments import values_by_name
from cs336_model.arithmetic.flops import ModelShape, forward_flops
from cs336_model.program.code_digest import code_digest
from profile_grid.measuring.capture_identity import TABLE, identity
from profile_grid.measuring.results import COMPLETE, OUT_OF_MEMORY, MadeFrom, Status
from profile_grid.study.runs import grid_plan
from profile_grid.study.stage import Stage
from profile_grid.study.stages import BY_NAME, STAGES
from tests.profile_grid.made_up_results import CAPTURE, MACHINE, TIMING, changed

ROOT = Path(__file__).parent.parent
RECORDS = {"timing": TIMING, "capture": CAPTURE}
MAKER = "0" * 16  # the digest of whatever made something
MAKERS = {
    "results": {stage.name: MAKER for stage in STAGES},
    "tables": {stage.name: MAKER for stage in STAGES if stage.tables_of_a_run},
    "own_rules": MAKER,
}
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
    """Writes FOLDER/grid.json, FOLDER/makers.json, the digests that the merge is told, and for each of so many runs
    FOLDER/runs/RUN with what its stages and tables leave."""
    plan = grid_plan(made_config(runs))
    folder.mkdir(parents=True)
    (folder / "grid.json").write_text(json.dumps(plan))
    (folder / "makers.json").write_text(json.dumps(MAKERS))
    example = ExampleRuns(folder / "templates")
    last = plan["runs"][-1]["model"]
    for number, entry in enumerate(plan["runs"]):
        write_run(folder / "runs" / entry["run"], entry, example, number, fits=entry["model"] != last)


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
        if stage.tables_of_a_run:
            write_tables(folder, stage, record, lambda name: example.table_file(name, like, number, fits))


def write_tables(folder: Path, stage: Stage, record: dict, file_of) -> None:
    """Puts the tables of a run into its folder, by links, and the status that tells what they are made from."""
    of_run = stage.tables_of_a_run
    digests = {name: one["sha256"] for name, one in record["files"].items()}
    made_from = MadeFrom(record["specification"], digests, MAKER, MAKER)
    (folder / of_run.status_file).write_text(json.dumps(asdict(Status(record["status"], None, [], made_from))))
    for name in of_run.names:
        os.link(file_of(name), folder / f"{name}.parquet")


def stage_record(stage: Stage, specification: dict, files: dict, seconds: dict[str, list[float]] | None) -> dict:
    """What one stage of a run leaves; its program ran out of memory where there are no seconds."""
    program = specification["program"]
    times = {phase: every[: program["measured_steps"]] for phase, every in (seconds or {}).items()}
    status = COMPLETE if times else OUT_OF_MEMORY
    return changed(
        RECORDS[stage.name],
        status=status, specification=specification, files=files, sources=MAKER, facts=NSYS,
        program__machine=H200, program__flops=forward_flops(shape_of(program)),
        program__status=status, program__spec=program, program__loaded__modules=LOADED_FILES,
        program__out_of_memory=None if times else NO_MEMORY, program__losses=[9.27] if times else [],
        program__step_seconds=times.pop("step", []), program__phase_seconds=times,
        program__warmup_seconds=[0.1] * (program["warmup_steps"] if status == COMPLETE else 0),
        program__warmup_phase_seconds={},
    )  # fmt: skip


def shape_of(program: dict) -> ModelShape:
    """The shape of the model of a program."""
    told = values_by_name(program)
    return ModelShape(**{field.name: told[field.name] for field in fields(ModelShape)})


def empty_capture(specification: dict) -> bytes:
    """A capture that holds nothing but its specification; SQLite itself would wait for the disk, 80 ms each."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE {TABLE} (specification TEXT NOT NULL)")
        database.execute(f"INSERT INTO {TABLE} VALUES (?)", (json.dumps(specification),))
        database.commit()
        return database.serialize()
