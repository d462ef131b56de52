"""Writes grid.json: the runs of the grid, and the specification of each of their processes."""

import argparse
import json
from pathlib import Path

from profile_grid.files import write_json
from profile_grid.study.runs import grid_plan
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True, help="what grid_part returns")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    write_json(arguments.output, grid_plan(arguments.config))


if __name__ == "__main__":
    run_command(main)
