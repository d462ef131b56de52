"""Draws the figures: `python -m workflow.scripts.figures --tables results/tables --output results/figures`."""

import argparse
from pathlib import Path

from profile_grid.figures.paper import write_figure
from profile_grid.figures.registry import all_figures
from profile_grid.tables.on_disk import SUMS, TablesOnDisk, declared_tables
from workflow.command import run_command


def main() -> None:
    figures = all_figures()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the merged and summary tables (Parquet)")
    parser.add_argument("--output", type=Path, required=True, help="folder of NAME.svg and NAME.png")
    names = ", ".join(figures)
    parser.add_argument("--figures", nargs="+", choices=figures, default=figures, metavar="NAME", help=names)
    arguments = parser.parse_args()
    tables = TablesOnDisk(arguments.tables, columns=SUMS, declared=declared_tables())
    for name in arguments.figures:
        write_figure(figures[name], {table: tables[table] for table in figures[name].tables}, arguments.output)


if __name__ == "__main__":
    run_command(main)
