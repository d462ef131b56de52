"""Writes the documents: `python -m workflow.scripts answers --tables results/tables --output results/answers`."""

import json
from pathlib import Path

from profile_grid.documents.documents import documents as make_documents
from profile_grid.files import write_text
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables


def main(*, tables: Path, output: Path, documents: list[str] | None = None) -> None:
    """Writes the documents of these names, by default all."""
    on_disk = TablesOnDisk(tables, declared=declared_tables())
    provenance = json.loads((tables / "provenance.json").read_text())
    for name, markdown in make_documents(on_disk, on_disk["runs"], provenance, documents).items():
        write_text(output / f"{name}.md", markdown)
