"""What every rule needs: the runs of the grid, and the source files on which each stage depends.

Snakemake sees neither imported modules nor templates, so every stage lists its sources as inputs. The lists differ on
purpose: a measurement depends only on what can change it, or a typing mistake in the analysis would cost hours of GPU.
"""

import json
import os
import time
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profile_grid.runs import (
    ConfigError,
    capture_specification,
    checked_config,
    grid_part,
    grid_runs,
    timing_specification,
)

ROOT = Path(workflow.basedir)
PYTHON = "PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}} python -m workflow.scripts".format(root=ROOT)

try:
    RUNS = grid_runs(checked_config(config))
except ConfigError as error:
    raise WorkflowError(f"config.yaml: {error}")

TIMINGS = {name: timing_specification(config, run) for name, run in RUNS.items()}
CAPTURES = {name: capture_specification(config, run) for name, run in RUNS.items()}
# the progress lines of the measurements count against these
os.environ["PROFILE_GRID_MEASUREMENTS"] = str(2 * len(RUNS))
os.environ["PROFILE_GRID_STARTED"] = str(time.time())


wildcard_constraints:
    run="[A-Za-z0-9][A-Za-z0-9._-]*",


def sources(*patterns):
    """The files of this checkout that match, in a fixed order."""
    return sorted(str(path) for pattern in patterns for path in ROOT.glob(pattern))


PROGRAM = sources("cs336_model/*.py") + [str(ROOT / path) for path in config["program"].get("sources", [])]
KERNEL_TABLES = sources("kernel_tables/*.py")


def of_every_run(*names):
    """The files of these names of every run in the grid."""
    return [f"results/runs/{run}/{name}" for run in RUNS for name in names]
