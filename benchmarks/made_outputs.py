"""Writes results of every run of a grid, and all files made from them, so that nothing remains to be done.

They serve to measure the planning of a finished grid. They look measured on this host's CPU, so that a plan compares
settings, code, versions and variables.
"""

import json
import os
import platform
from pathlib import Path

from benchmarks.made_study import LOADED_FILES, stage_record
from cs336_model.cpu import cpu_name
from profile_grid.freshness.digests import sha256_of_file
from profile_grid.freshness.environment import variables_record
from profile_grid.freshness.made import write_folder_records, write_records
from profile_grid.freshness.making import Making
from profile_grid.freshness.versions import host_record
from profile_grid.results.capture_identity import identity
from profile_grid.study.stages import BY_NAME
from tests.profile_grid.made_up_results import MACHINE

STEPS = {"step": [0.01] * 50}
THIS_HOST = MACHINE | {"device_name": cpu_name(), "cpu_name": cpu_name(), "python": platform.python_version()}
SNAKEFILE = f"""\
include: "Snakefile"

import sys

sys.path.append({str(Path(__file__).parents[1])!r})
from benchmarks.made_outputs import write_analysis, write_results

write_results(SPECIFICATIONS, SOURCES)
write_analysis(RERUNS, grid_plan(config)["runs"])
"""  # written next to a project's Snakefile


def write_results(specifications: dict[str, dict[str, str]], sources: dict[str, str]) -> None:
    """Writes the outputs of every stage of every run; specifications are JSON, by stage and run."""
    for stage in (BY_NAME[name] for name in specifications):
        for run, text in specifications[stage.name].items():
            folder = Path("results/runs", run)
            folder.mkdir(parents=True, exist_ok=True)
            for name in stage.files:
                (folder / name).write_text(f"the {name} of {run}")
            files = {name: identity(folder / name) for name in stage.files}
            specification = json.loads(text)
            record = stage_record(stage, specification, files, STEPS) | {"sources": sources[stage.name]}
            record["environment"] = variables_record(os.environ, specification["environment"]) | host_record()
            record["program"] |= {"machine": THIS_HOST, "loaded_distributions": {}}
            record["program"]["loaded"]["modules"] = LOADED_FILES
            (folder / stage.result).write_text(json.dumps(record, indent=1))


def write_analysis(reruns, entries: list[dict]) -> None:
    """Writes a line into every file that a job of the analysis makes, then the records of them."""
    files = {making: _files(making) for making in reruns.makings()}
    for path in (path for paths in files.values() for path in paths):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(path)
    Path("results/machine.txt").touch()
    for making, paths in files.items():
        recipe = reruns.recipe_now(making, entries if making.of_runs else None)
        digests = {path: sha256_of_file(path) for path in paths}
        for folder in making.folders:
            write_folder_records(folder, digests, recipe)
        if not making.folders:
            write_records(digests, recipe)


def _files(making: Making) -> list[str]:
    return [*making.outputs, *(f"{folder}/contents.txt" for folder in making.folders)]
