"""Writes made-up results of every run of a grid and all files made from them, to measure how long planning takes when
nothing remains to be done.

The results look as if they were measured on this host's CPU, so that a plan compares all that it would of real ones:
settings, code, versions and environment variables.
"""

import json
import os
import platform
from dataclasses import fields
from pathlib import Path

from benchmarks.harness import ROOT
from cs336_model.arguments import values_by_name
from cs336_model.arithmetic.flops import ModelShape, forward_flops
from cs336_model.cpu import cpu_name
from cs336_model.program.code_digest import code_digest
from profile_grid.freshness import environment, records, versions
from profile_grid.freshness.digests import sha256_of_file
from profile_grid.results import capture_identity
from profile_grid.study import stages
from profile_grid.study.stage import Stage
from tests.profile_grid.made_up_results import CAPTURE, MACHINE, TIMING, changed

MADE_UP_RESULTS = {"timing": TIMING, "capture": CAPTURE}
LOADED_FILES = {  # by name of the module, as a result records the files that its process loaded
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): {
        "root": "project",
        "path": str(path.relative_to(ROOT)),
        "digest": code_digest(path.read_bytes()),
    }
    for path in sorted(ROOT.glob("cs336_model/**/*.py"))
}
THIS_HOST = MACHINE | {"device_name": cpu_name(), "cpu_name": cpu_name(), "python": platform.python_version()}
SNAKEFILE = f"""\
include: "Snakefile"

import sys

sys.path.append({str(ROOT)!r})
from benchmarks.finished_grid import write_analysis, write_results

write_results(SPECIFICATIONS, SOURCE_DIGESTS)
write_analysis(RERUNS, grid_plan(config)["runs"])
"""  # a Snakefile in the folder of a copy of this project, whose variables it uses


def write_results(specifications: dict[str, dict[str, str]], sources: dict[str, str]) -> None:
    """Writes the outputs of every stage of every run. Specifications are JSON by stage and run, sources by stage."""
    for stage in (stages.STAGE_BY_NAME[name] for name in specifications):
        for run, specification in specifications[stage.name].items():
            folder = Path("results/runs", run)
            folder.mkdir(parents=True, exist_ok=True)
            for file in stage.files:
                (folder / file).write_text(f"the {file} of {run}")
            files = {file: capture_identity.file_identity(folder / file) for file in stage.files}
            result = stage_result(stage, json.loads(specification), files, sources[stage.name])
            (folder / stage.result_file).write_text(json.dumps(result, indent=1))


def stage_result(stage: Stage, specification: dict, files: dict, sources: str) -> dict:
    """The complete result of one stage of a run."""
    program = specification["program"]
    arguments = values_by_name(program)
    shape = ModelShape(**{field.name: arguments[field.name] for field in fields(ModelShape)})
    return changed(
        MADE_UP_RESULTS[stage.name],
        specification=specification, files=files, sources=sources, program__machine=THIS_HOST,
        program__flops=forward_flops(shape), program__spec=program, program__loaded__modules=LOADED_FILES,
        program__loaded_distributions={}, program__losses=[9.27],
        program__step_seconds=[0.01] * program["measured_steps"], program__phase_seconds={},
        program__warmup_seconds=[0.1] * program["warmup_steps"], program__warmup_phase_seconds={},
        environment=environment.variables_record(os.environ, specification["environment"]) | versions.host_record(),
    )  # fmt: skip


def write_analysis(reruns, entries: list[dict]) -> None:
    """Writes a line into every file that a job of the analysis makes, then their records. `entries`: all runs."""
    for path in (path for job in reruns.analysis_jobs.values() for path in job.outputs):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(path)
    Path("results/machine.txt").touch()
    for job in reruns.analysis_jobs.values():
        recipe = reruns.current_recipe(job, entries if job.runs_plan else None)
        records.write_records({path: sha256_of_file(path) for path in job.outputs}, recipe)
