"""Shared by all: the runs of the grid, and the source files on which each stage depends.

Snakemake sees neither imported modules nor templates, so every stage lists its sources as inputs. The lists differ on
purpose: a measurement depends only on what can change it, or a typing mistake in the analysis would cost hours of GPU.
"""

import json
import os
from pathlib import Path

from snakemake.exceptions import WorkflowError

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


PROGRAM = sources("cs336_model/*.py", *config["program"].get("sources", []))
KERNEL_TABLES = sources("kernel_tables/*.py", "kernel_tables/*.toml")
SUMMARY_SOURCES = sources("profile_grid/*.py")
ANSWER_SOURCES = sources("profile_grid/*.py")
FIGURE_SOURCES = sources("profile_grid/*.py", "profile_grid/figures/*.py")


def of_every_run(*names):
    """The files of these names of every run in the grid."""
    return [f"results/runs/{run}/{name}" for run in RUNS for name in names]
