"""Every table for the write-up: `python -m workflow.scripts.table_documents --tables results/tables --output ...`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from profile_grid.documents.formats import SUFFIXES, fragment_in
from profile_grid.documents.table_documents import table_documents
from profile_grid.files import write_text
from profile_grid.study.catalogue import TABLES
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--output", type=Path, required=True, help="folder; one folder per format is made in it")
    parser.add_argument("--formats", nargs="+", choices=list(SUFFIXES), default=["markdown"], help="beside Markdown")
    arguments = parser.parse_args()
    for name in TABLES:
        write_table_documents(name, arguments.tables, arguments.output, ["markdown", *arguments.formats])


def write_table_documents(name: str, tables: Path, output: Path, styles: list[str]) -> None:
    """Writes one table in every style, below a folder for each style."""
    for stem, markdown in table_documents(name, pd.read_parquet(tables / f"{name}.parquet")):
        for style in dict.fromkeys(styles):
            write_text(output / style / f"{stem}{SUFFIXES[style]}", fragment_in(style, markdown))


if __name__ == "__main__":
    run_command(main)
