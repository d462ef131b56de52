"""Draws the figures: `python -m workflow.scripts.figures --tables results/tables --output results/figures`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from profile_grid.figures import NAMES, TABLES, figure, save
from profile_grid.files import replacing
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the merged and summary tables (Parquet)")
    parser.add_argument("--output", type=Path, required=True, help="folder of NAME.svg and NAME.png")
    parser.add_argument("--figures", nargs="+", choices=NAMES, default=NAMES, metavar="NAME", help=", ".join(NAMES))
    arguments = parser.parse_args()
    tables = {name: pd.read_parquet(arguments.tables / f"{name}.parquet") for name in TABLES}
    for name in arguments.figures:
        drawn = figure(name, tables)
        for suffix in (".svg", ".png"):
            path = arguments.output / f"{name}{suffix}"
            with replacing(path) as beside:
                save(drawn, beside, suffix)


if __name__ == "__main__":
    run_command(main)
