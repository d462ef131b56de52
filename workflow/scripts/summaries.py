"""The tables that answer the questions: `python -m workflow.scripts.summaries --tables results/tables`."""

import argparse
from pathlib import Path

from profile_grid.documents.summaries import summary_tables
from profile_grid.files import write_table
from profile_grid.tables.on_disk import SUMS, TablesOnDisk, declared_tables
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the merged tables")
    parser.add_argument("--output", type=Path, help="folder of the summary tables; by default that of the merged ones")
    arguments = parser.parse_args()
    for name, table in summary_tables(TablesOnDisk(arguments.tables, columns=SUMS, declared=declared_tables())).items():
        write_table((arguments.output or arguments.tables) / f"{name}.csv", table)


if __name__ == "__main__":
    run_command(main)
