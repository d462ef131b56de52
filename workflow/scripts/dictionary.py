"""The data dictionary: `python -m workflow.scripts.dictionary --tables results/tables --output .../README.md`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from profile_grid.documents.dictionary import check_documented, dictionary
from profile_grid.files import write_text
from profile_grid.study.catalogue import TABLES
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder of tables that must agree with the dictionary")
    parser.add_argument("--output", type=Path, required=True, help="Markdown file")
    arguments = parser.parse_args()
    if arguments.tables:
        for name in TABLES:
            check_documented(name, pd.read_parquet(arguments.tables / f"{name}.parquet"))
    write_text(arguments.output, dictionary())


if __name__ == "__main__":
    run_command(main)
