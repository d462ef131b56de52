"""Writes the documents: `python -m workflow.scripts.answers --tables results/tables --output results/answers`."""

import argparse
import json
from pathlib import Path

from profile_grid.documents.documents import NAMES, documents
from profile_grid.documents.formats import SUFFIXES, document_in
from profile_grid.files import write_text
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of runs, summaries and provenance.json")
    parser.add_argument("--output", type=Path, required=True, help="folder of the documents")
    parser.add_argument("--documents", nargs="+", choices=NAMES, help="only these, by name")
    parser.add_argument("--formats", nargs="+", choices=list(SUFFIXES), default=["markdown"], help="besides Markdown")
    arguments = parser.parse_args()
    tables = TablesOnDisk(arguments.tables, declared=declared_tables())
    provenance = json.loads((arguments.tables / "provenance.json").read_text())
    for name, markdown in documents(tables, tables["runs"], provenance, arguments.documents).items():
        for style in dict.fromkeys(["markdown", *arguments.formats]):
            write_text(arguments.output / f"{name}{SUFFIXES[style]}", document_in(style, markdown))


if __name__ == "__main__":
    run_command(main)
