"""How long Snakemake takes to plan the grid: `python -m benchmarks.planning`. Nothing is run; about two minutes.

Dry-runs of three things, each in a folder of its own and with nothing made yet:
- an empty Snakefile: what Snakemake itself takes to start;
- a plain Snakefile with as many jobs as the runs of the grid have, each with one input, one output, a log, a message
  and a parameter: what Snakemake takes for the jobs;
- this project's grid.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.made_grid import ROOT, SIZES, made_config
from profile_grid.study.stages import STAGES

PACKAGES = ("cs336_model", "kernel_recorder", "kernel_tables", "profile_grid", "range_marks")
SOURCES = ("Snakefile", "config.yaml", "profiles", "envs", "workflow", *PACKAGES)
ASKED = [stage for stage in STAGES if stage.of_every_run]
JOBS_PER_RUN = len(ASKED) + sum(stage.tables_of_a_run is not None for stage in ASKED)
EMPTY = "rule all:\n    shell: 'true'\n"
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


def dry_run_seconds(folder: Path, repeats: int) -> tuple[float, float]:
    """The shortest wall time of several dry-runs and the processor time of that one."""
    return min(_once(folder) for _ in range(repeats))


def _once(folder: Path) -> tuple[float, float]:
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "snakemake", "--dry-run", "--cores", "1", "--quiet", "all"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(f"the dry-run in {folder} failed: {done.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def empty_folder(folder: Path) -> Path:
    """A folder with an empty Snakefile."""
    folder.mkdir()
    (folder / "Snakefile").write_text(EMPTY)
    return folder


def plain_folder(folder: Path, runs: int) -> Path:
    """A folder with a Snakefile of `runs` chains of as many jobs as a run has."""
    (folder / "out").mkdir(parents=True)
    steps = [PLAIN_STEP.format(step=step, after=step + 1) for step in range(JOBS_PER_RUN)]
    (folder / "Snakefile").write_text(PLAIN.format(chains=runs, depth=JOBS_PER_RUN) + "".join(steps))
    for chain in range(runs):
        (folder / "out" / f"{chain}.0").touch()
    return folder


def grid_folder(folder: Path, runs: int) -> Path:
    """A folder with this project and a grid of `runs` runs."""
    folder.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        copy(ROOT / name, folder / name)
    (folder / "config.yaml").write_text(yaml.safe_dump(made_config(runs)))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, nargs="+", choices=SIZES, default=[60, 6000])
    parser.add_argument("--repeats", type=int, default=3, help="dry-runs of each; the shortest counts (6000: one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        empty, processor = dry_run_seconds(empty_folder(Path(scratch) / "empty"), arguments.repeats)
        print(f"empty Snakefile              {empty:6.2f} s (processor {processor:.2f} s)", flush=True)
        for runs in arguments.runs:
            repeats = 1 if runs > 1000 else arguments.repeats
            plain, processor = dry_run_seconds(plain_folder(Path(scratch) / f"plain{runs}", runs), repeats)
            print(
                f"{runs:5} plain chains of {JOBS_PER_RUN} jobs  {plain:6.2f} s (processor {processor:.2f} s)",
                flush=True,
            )
            grid, processor = dry_run_seconds(grid_folder(Path(scratch) / f"grid{runs}", runs), repeats)
            print(
                f"{runs:5} runs of this grid       {grid:6.2f} s (processor {processor:.2f} s):"
                f" {grid - empty:+.2f} s against an empty Snakefile, {grid / plain:.2f} times the plain chains",
                flush=True,
            )


if __name__ == "__main__":
    main()
