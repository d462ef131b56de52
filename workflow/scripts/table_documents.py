"""Every table in the formats of the write-up: `python -m workflow.scripts.table_documents --tables results/tables ...`."""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from profile_grid.columns import TABLES
from profile_grid.files import write_text
from profile_grid.formats import SUFFIXES, fragment_in
from profile_grid.table_documents import table_documents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--output", type=Path, required=True, help="folder; one folder per format is made in it")
    parser.add_argument("--formats", nargs="+", choices=list(SUFFIXES), default=["markdown"], help="beside Markdown")
    arguments = parser.parse_args()
    for name in TABLES:
        table = pd.read_parquet(arguments.tables / f"{name}.parquet")
        for stem, markdown in table_documents(name, table):
            for style in dict.fromkeys(["markdown", *arguments.formats]):
                write_text(arguments.output / style / f"{stem}{SUFFIXES[style]}", fragment_in(style, markdown))


if __name__ == "__main__":
    main()
