"""Measures how long Snakemake takes to plan grids, by default of 60 and 6000 runs: `python -m benchmarks.planning`.

The fastest of several dry runs (of one above 1000 runs) of each workflow, in its own folder. Ratios are to the first:
- a plain Snakefile with as many jobs as the runs of the grid have, each with one input, one output, a log, a message
  and a parameter: the time that Snakemake itself needs;
- this project with a generated grid;
- the same with made-up results and files made from them (benchmarks/finished_grid.py): nothing to do;
- a minimal Snakefile: the time to start Snakemake.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.finished_grid import SNAKEFILE
from benchmarks.harness import PYTHON, ROOT, Costs, config_with_runs, run
from profile_grid.study.stages import STAGES
from profile_grid.study.workloads import MODEL_STEPS

PACKAGES = ("cs336_model", "kernel_recorder", "kernel_tables", "profile_grid", "range_marks")
SOURCES = ("Snakefile", "config.yaml", "profiles", "envs", "workflow", *PACKAGES)
COMMAND = ["env", "PYTHONPATH=", *PYTHON, "snakemake", "--dry-run", "--cores", "1", "--quiet", "all"]
STAGES_OF_EVERY_RUN = [stage for stage in STAGES if stage.of_every_run and stage.workload is MODEL_STEPS]
JOBS_PER_RUN = len(STAGES_OF_EVERY_RUN) + sum(stage.tables_of_a_run is not None for stage in STAGES_OF_EVERY_RUN)
# Filled by str.format; what is in doubled braces is left to Snakemake.
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


def main(*, runs: list[int] = [60, 6000], repeats: int = 3) -> str | None:  # noqa: B006 (never changed)
    for run_count in runs:
        with tempfile.TemporaryDirectory() as scratch:
            costs = Costs(f"{run_count} runs, {JOBS_PER_RUN} jobs of each", "wall_s")
            for name, write_folder in FOLDER_WRITERS.items():
                folder = Path(scratch, name)
                folder.mkdir()
                write_folder(folder, run_count)
                cost = costs.measure(name, COMMAND, cwd=folder, repeats=1 if run_count > 1000 else repeats)
                if isinstance(cost, str):
                    return f"the dry run of {name} failed: {cost}"


def write_minimal(folder: Path, runs: int) -> None:
    """A Snakefile with one trivial job."""
    (folder / "Snakefile").write_text("rule all:\n    shell: 'true'\n")


def write_plain(folder: Path, runs: int) -> None:
    """A Snakefile with a chain of jobs per run: as many as a run has."""
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
    (folder / "config.yaml").write_text(yaml.safe_dump(config_with_runs(runs)))


def write_finished_grid(folder: Path, runs: int) -> None:
    """The same grid, finished."""
    write_grid(folder, runs)
    # finish.smk writes all files when Snakemake reads it, even in a dry run
    (folder / "finish.smk").write_text(SNAKEFILE)
    command = [*PYTHON, "snakemake", "--snakefile", "finish.smk", "--dry-run", "--cores", "1", "--quiet", "all"]
    subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": ""}, check=True)


FOLDER_WRITERS = {
    "plain chains": write_plain,
    "this grid": write_grid,
    "this grid, finished": write_finished_grid,
    "minimal Snakefile": write_minimal,
}


if __name__ == "__main__":
    run(main)
