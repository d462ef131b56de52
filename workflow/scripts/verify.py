"""Makes every table anew from the captures and says what differs on disk: `python -m workflow.scripts.verify ...`.

Reads capture.json, capture.sqlite and timing.json of every run; changes nothing. Ends with status 1 where a table of a
run, or a merged one, is not what comes out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from profile_grid.files import write_json, write_table
from profile_grid.measuring.results import read_result
from profile_grid.merging import merge
from profile_grid.merging.measured_runs import StaleRun, read_runs
from profile_grid.merging.verify import table_differences
from profile_grid.study.runs import grid_plan
from profile_grid.study.stages import RESULTS_OF_A_RUN, STAGES, Stage
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="what grid_part returns")
    parser.add_argument("--kernel-classes", type=json.loads, default=[], help="own class rules, as JSON")
    parser.add_argument("--results", type=Path, required=True, help="folder of runs and tables")
    arguments = parser.parse_args()
    plan = grid_plan(arguments.config)["runs"]
    lacking = [entry["run"] for entry in plan if not is_measured(arguments.results / "runs" / entry["run"])]
    if lacking:
        sys.exit(
            f"{len(lacking)} of {len(plan)} runs have no results to verify: {', '.join(lacking[:5])}; to measure them:"
            " snakemake all"
        )
    with tempfile.TemporaryDirectory() as scratch:
        found = differences(plan, arguments.results, Path(scratch), arguments.kernel_classes)
    print("".join(f"{line}\n" for line in found), end="")
    if found:
        sys.exit(
            f"{len(found)} file(s) are not what the captures give;"
            " make them again: snakemake all --forcerun tables_of_capture"
        )
    print(f"the tables of {len(plan)} runs, and the merged ones, are what the captures give")


def is_measured(folder: Path) -> bool:
    """Whether a run has what its tables are made from."""
    return all((folder / name).exists() for name in RESULTS_OF_A_RUN)


def differences(plan: list[dict], results: Path, scratch: Path, kernel_classes: list[dict]) -> list[str]:
    """One line per file that differs; in `scratch` every table is made anew."""
    found = []
    for entry in plan:
        found += differences_of_run(results / "runs" / entry["run"], scratch / entry["run"], kernel_classes)
    try:
        runs = read_runs(plan, scratch)
    except StaleRun as error:
        return [*found, str(error).replace(str(scratch), str(results / "runs"))]
    for name, table in merge.merged_tables(runs, scratch).items():
        found += table_differences(table, results / "tables" / name)
    return found


def differences_of_run(folder: Path, scratch: Path, kernel_classes: list[dict]) -> list[str]:
    """What differs in the tables and the status of one run; `scratch` gets both as they should be."""
    scratch.mkdir()
    for name in RESULTS_OF_A_RUN:
        shutil.copyfile(folder / name, scratch / name)
    found = []
    for stage in STAGES:
        if stage.tables_of_a_run:
            found += differences_of_stage(stage, folder, scratch, kernel_classes)
    return found


def differences_of_stage(stage: Stage, folder: Path, scratch: Path, kernel_classes: list[dict]) -> list[str]:
    """What differs in the tables and the status that one stage of a run gives."""
    of_run, found = stage.tables_of_a_run, []
    module, _, function = of_run.made_by.partition(":")
    result = read_result(folder / stage.result)
    status, tables = getattr(import_module(module), function)(result, folder, kernel_classes)
    write_json(scratch / of_run.status_file, status)
    for name, table in tables.items():
        write_table(scratch / f"{name}.csv", table)
        found += table_differences(table, folder / name)
    path = folder / of_run.status_file
    if not path.exists() or json.loads(path.read_text()) != status:
        found.append(f"{path} is not what its {stage.name} gives: {json.dumps(status)}")
    return found


if __name__ == "__main__":
    run_command(main)
