"""Writes grid.json: the runs of the grid, and the specification of each of their stages."""

from pathlib import Path

from profile_grid.files import write_json
from profile_grid.study.runs import grid_plan


def main(*, config: dict, output: Path) -> None:
    write_json(output, grid_plan(config))
