"""Measures how long Snakemake plans a grid: `python -m benchmarks.planning`. Nothing is run; about five minutes.

Dry runs of workflows, each in a separate folder. Ratios are to the first:
- a plain Snakefile with as many jobs as the runs of the grid have, each with one input, one output, a log, a message
  and a parameter: the time of Snakemake for the jobs;
- this project's grid;
- the same grid with all results and all files made from them: nothing to do. The results look measured on this host's
  CPU, so that a plan compares settings, code, versions and variables;
- an empty Snakefile: the time to start Snakemake.
"""

import json
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import fields
from pathlib import Path

from benchmarks.harness import PYTHON, ROOT, Costs, made_config, run
from cs336_model.arguments import values_by_name
from cs336_model.arithmetic.flops import ModelShape, forward_flops
from cs336_model.cpu import cpu_name
from cs336_model.program.code_digest import code_digest
from profile_grid.freshness import environment, made, versions
from profile_grid.freshness.digests import sha256_of_file
from profile_grid.freshness.making import Making
from profile_grid.results import capture_identity
from profile_grid.study.stage import Stage
from profile_grid.study.stages import BY_NAME, STAGES
from tests.profile_grid.made_up_results import CAPTURE, MACHINE, TIMING, changed

PACKAGES = ("cs336_model", "kernel_recorder", "kernel_tables", "profile_grid", "range_marks")
SOURCES = ("Snakefile", "config.yaml", "profiles", "envs", "workflow", *PACKAGES)
COMMAND = ["env", "PYTHONPATH=", *PYTHON, "snakemake", "--dry-run", "--cores", "1", "--quiet", "all"]
STAGES_OF_EVERY_RUN = [stage for stage in STAGES if stage.of_every_run]
JOBS_PER_RUN = len(STAGES_OF_EVERY_RUN) + sum(stage.tables_of_a_run is not None for stage in STAGES_OF_EVERY_RUN)
PLAIN = """\
N = {chains}
rule all:
    input: expand("out/{{n}}.{depth}", n=range(N))
"""
PLAIN_STEP = """\
rule step{step}:
    input: "out/{{n}}.{step}"
    output: "out/{{n}}.{after}"
    log: "logs/{{n}}.{step}"
    params: text=lambda wildcards: "run " + wildcards.n
    message: "step {step} of {{wildcards.n}}"
    shell: "echo {{params.text:q}} > {{output:q}} 2> {{log:q}}"
"""
RECORDS = {"timing": TIMING, "capture": CAPTURE}
LOADED_FILES = {
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
from benchmarks.planning import write_analysis, write_results

write_results(SPECIFICATIONS, SOURCES)
write_analysis(RERUNS, grid_plan(config)["runs"])
"""  # written next to a project's Snakefile


def main(*, runs: list[int] = [60, 6000], repeats: int = 3) -> str | None:  # noqa: B006, which nothing changes
    for number in runs:
        with tempfile.TemporaryDirectory() as scratch:
            costs = Costs(f"{number} runs, {JOBS_PER_RUN} jobs of each", "wall_s")
            for name, write in FOLDERS.items():
                folder = Path(scratch, name)
                folder.mkdir()
                write(folder, number)
                problem = costs.measure(name, COMMAND, cwd=folder, repeats=1 if number > 1000 else repeats)
                if isinstance(problem, str):
                    return f"the dry run of {name} failed: {problem}"


def write_empty(folder: Path, runs: int) -> None:
    """An empty Snakefile."""
    (folder / "Snakefile").write_text("rule all:\n    shell: 'true'\n")


def write_plain(folder: Path, runs: int) -> None:
    """A Snakefile of `runs` chains of as many jobs as a run has."""
    (folder / "out").mkdir()
    steps = [PLAIN_STEP.format(step=step, after=step + 1) for step in range(JOBS_PER_RUN)]
    (folder / "Snakefile").write_text(PLAIN.format(chains=runs, depth=JOBS_PER_RUN) + "".join(steps))
    for chain in range(runs):
        (folder / "out" / f"{chain}.0").touch()


def write_grid(folder: Path, runs: int) -> None:
    """This project and a grid of `runs` runs."""
    import yaml

    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    (folder / "config.yaml").write_text(yaml.safe_dump(made_config(runs)))


def write_made_grid(folder: Path, runs: int) -> None:
    """The same grid, of which everything exists."""
    write_grid(folder, runs)
    (folder / "made.smk").write_text(SNAKEFILE)
    command = [*PYTHON, "snakemake", "--snakefile", "made.smk", "--dry-run", "--cores", "1", "--quiet", "all"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": ""}, check=True)


def write_results(specifications: dict[str, dict[str, str]], sources: dict[str, str]) -> None:
    """Writes the outputs of every stage of every run; specifications are JSON, by stage and run."""
    for stage in (BY_NAME[name] for name in specifications):
        for name, text in specifications[stage.name].items():
            folder = Path("results/runs", name)
            folder.mkdir(parents=True, exist_ok=True)
            for file in stage.files:
                (folder / file).write_text(f"the {file} of {name}")
            files = {file: capture_identity.identity(folder / file) for file in stage.files}
            record = stage_record(stage, json.loads(text), files, sources[stage.name])
            (folder / stage.result).write_text(json.dumps(record, indent=1))


def stage_record(stage: Stage, specification: dict, files: dict, sources: str) -> dict:
    """The complete result of one stage of a run."""
    program = specification["program"]
    arguments = values_by_name(program)
    shape = ModelShape(**{field.name: arguments[field.name] for field in fields(ModelShape)})
    return changed(
        RECORDS[stage.name],
        specification=specification, files=files, sources=sources, program__machine=THIS_HOST,
        program__flops=forward_flops(shape), program__spec=program, program__loaded__modules=LOADED_FILES,
        program__loaded_distributions={}, program__losses=[9.27],
        program__step_seconds=[0.01] * program["measured_steps"], program__phase_seconds={},
        program__warmup_seconds=[0.1] * program["warmup_steps"], program__warmup_phase_seconds={},
        environment=environment.variables_record(os.environ, specification["environment"]) | versions.host_record(),
    )  # fmt: skip


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
            made.write_folder_records(folder, digests, recipe)
        if not making.folders:
            made.write_records(digests, recipe)


def _files(making: Making) -> list[str]:
    return [*making.outputs, *(f"{folder}/contents.txt" for folder in making.folders)]


FOLDERS = {
    "plain chains": write_plain,
    "this grid": write_grid,
    "this grid, all made": write_made_grid,
    "empty Snakefile": write_empty,
}


if __name__ == "__main__":
    run(main)
