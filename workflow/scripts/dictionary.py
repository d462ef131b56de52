"""The data dictionary: `python -m workflow.scripts.dictionary --tables results/tables --output .../README.md`."""

import argparse
from pathlib import Path

from profile_grid.documents.dictionary import data_package, dictionary
from profile_grid.files import write_json, write_text
from profile_grid.study.catalogue import tables_of
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, help="folder of tables that must agree with the dictionary")
    parser.add_argument("--output", type=Path, required=True, help="Markdown file")
    parser.add_argument("--schema", type=Path, help="JSON file: the tables as a Frictionless data package")
    arguments = parser.parse_args()
    if arguments.tables:
        on_disk = TablesOnDisk(arguments.tables)
        for name in tables_of(on_disk["runs"].to_dict("records")):
            declared_tables()[name].check(on_disk[name])
    write_text(arguments.output, dictionary())
    if arguments.schema:
        write_json(arguments.schema, data_package())


if __name__ == "__main__":
    run_command(main)
