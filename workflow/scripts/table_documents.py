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
    for style in dict.fromkeys(["markdown", *(formats or [])]):
        write_documents(documents, style, output / style)


def write_documents(documents: dict[str, str], style: str, folder: Path) -> None:
    """Writes every table in one format, and the list of the files: a plan does not know how many a long table needs."""
    for stem, markdown in documents.items():
        write_text(folder / f"{stem}{SUFFIXES[style]}", fragment_in(style, markdown))
    write_text(folder / CONTENTS, "".join(f"{stem}{SUFFIXES[style]}\n" for stem in documents))
