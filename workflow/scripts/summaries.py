"""The table behind each answer: `python -m workflow.scripts.summaries --tables results/tables`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from profile_grid.files import write_table
from profile_grid.tables.summary import summary_tables
from workflow.command import run_command

MERGED = ("runs", "timings", "kernels", "phases", "ranges")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the merged tables")
    parser.add_argument("--output", type=Path, help="folder of the summary tables; by default that of the merged ones")
    arguments = parser.parse_args()
    merged = {name: pd.read_parquet(arguments.tables / f"{name}.parquet") for name in MERGED}
    for name, table in summary_tables(merged).items():
        write_table((arguments.output or arguments.tables) / f"{name}.csv", table)


if __name__ == "__main__":
    run_command(main)
