"""Writes tables as documents: `python -m workflow.scripts table_documents --tables results/tables --output ...`."""

from pathlib import Path

import pandas as pd

from profile_grid.documents.formats import SUFFIXES, fragment_in
from profile_grid.documents.table_documents import table_documents
from profile_grid.files import write_text
from profile_grid.study.catalogue import table_names_of

CONTENTS = "contents.txt"


def main(*, tables: Path, output: Path, formats: list[str] | None = None) -> None:
    runs = pd.read_parquet(tables / "runs.parquet")
    documents = {
        stem: markdown
        for name in table_names_of(runs.to_dict("records"))
        for stem, markdown in table_documents(name, pd.read_parquet(tables / f"{name}.parquet"))
    }
    for file_format in dict.fromkeys(["markdown", *(formats or [])]):
        write_documents(documents, file_format, output / file_format)


def write_documents(documents: dict[str, str], file_format: str, folder: Path) -> None:
    """Writes every table in one format, and the list of the files: a plan does not know how many a long table needs."""
    for stem, markdown in documents.items():
        write_text(folder / f"{stem}{SUFFIXES[file_format]}", fragment_in(file_format, markdown))
    write_text(folder / CONTENTS, "".join(f"{stem}{SUFFIXES[file_format]}\n" for stem in documents))
