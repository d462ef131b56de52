"""Files written whole or not at all: beside their place, then renamed into it."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_tables.whole_files import written_whole


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to, in the same folder; it replaces `path` when the block ends well, else it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with written_whole(path) as beside:
            yield beside
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk is told without the name of what was written
        raise


def remove_leftovers(*paths: Path, scratch: str | None = None) -> None:
    """Removes these files, what a killed job had half written of them, and its scratch folders beside them."""
    for path in paths:
        for leftover in (path, *path.parent.glob(f".{path.name}.*.partial")):
            leftover.unlink(missing_ok=True)
        for folder in path.parent.glob(f"{scratch}*") if scratch else ():
            shutil.rmtree(folder)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file, whole or not at all."""
    with replacing(path) as beside:
        beside.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Writes JSON, indented, with keys in their own order; NaN is an error, since JSON has none."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_table(path: Path, table) -> None:
    """Writes a DataFrame as CSV for people, with clean cells, and as Parquet, with the same stem, for programs."""
    from kernel_tables.clean_text import with_clean_cells  # here, since planning writes files too and needs no tables

    with replacing(path.with_suffix(".csv")) as beside:
        with_clean_cells(table).to_csv(beside, index=False)
    with replacing(path.with_suffix(".parquet")) as beside:
        table.to_parquet(beside, index=False)
