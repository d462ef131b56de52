"""The data dictionary: `python -m workflow.scripts.dictionary --tables results/tables --output .../README.md`."""

from __future__ import annotations

import argparse
from pathlib import Path

from profile_grid.documents.dictionary import check_documented, dictionary
from profile_grid.files import write_text
from profile_grid.study.catalogue import tables_of
from profile_grid.tables.on_disk import TablesOnDisk
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder of tables that must agree with the dictionary")
    parser.add_argument("--output", type=Path, required=True, help="Markdown file")
    arguments = parser.parse_args()
    if arguments.tables:
        on_disk = TablesOnDisk(arguments.tables)
        for name in tables_of(on_disk["runs"].to_dict("records")):
            check_documented(name, on_disk[name])
    write_text(arguments.output, dictionary())


if __name__ == "__main__":
    run_command(main)
