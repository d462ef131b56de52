"""Shared by all: the runs of the grid, and the source files on which each stage depends.

Snakemake sees neither imported modules nor templates, so every job has its sources as inputs. A job of the analysis
depends on all that its program imports; a measurement only on what can change it, or a typing mistake in the analysis
would cost hours of GPU.
"""

import json
import os
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profile_grid.imported_files import files_of_module, imported_files
from profile_grid.job_environment import prepare_job_environment
from profile_grid.runs import (
    ConfigError,
    capture_specification,
    checked_config,
    grid_part,
    grid_runs,
    timing_specification,
)

ROOT = Path(workflow.basedir)

try:
    RUNS = grid_runs(checked_config(config))
except ConfigError as error:
    raise WorkflowError(f"config.yaml: {error}")

TIMINGS = {name: timing_specification(config, run) for name, run in RUNS.items()}
CAPTURES = {name: capture_specification(config, run) for name, run in RUNS.items()}
prepare_job_environment(ROOT, measurements=2 * len(RUNS))


wildcard_constraints:
    run="[A-Za-z0-9][A-Za-z0-9._-]*",


def sources(*patterns):
    """The files of this checkout that match, in a fixed order, relative to the working folder: no path of this machine."""
    return [os.path.relpath(path) for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def program_sources(*programs):
    """The files of these programs and all of this checkout that they import."""
    return sources(*imported_files(ROOT, *programs))


def measured_program_sources(program):
    """What changes a measurement: the benchmark, the model and functions that config.yaml names, and its own list."""
    named = [program["constructor"], *program.get("annotate", {}).values()]
    modules = [path for name in named for path in files_of_module(ROOT, name.partition(":")[0])]
    return program_sources("cs336_model/benchmark.py", *modules) + sources(*program.get("sources", []))


MEASURED_FILES = ["timing.json", "capture.json", "capture.sqlite"]
TABLE_FILES = ["status.json", "kernels.csv", "phases.csv", "ranges.csv", "reports/kernel_summary.csv"]
MEASURED_PROGRAM = measured_program_sources(config["program"])


def of_every_run(*names):
    """The files of these names of every run in the grid."""
    return [f"results/runs/{run}/{name}" for run in RUNS for name in names]
