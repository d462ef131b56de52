"""Files written completely or not at all: under a temporary name in the same folder, then renamed."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_tables.whole_files import written_whole


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path in the same folder to write to. It replaces `path` if the block succeeds, else it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with written_whole(path) as partial:
            yield partial
    except OSError as error:
        error.filename = error.filename or str(path)  # the error of a full disk lacks the name of the file
        raise


def remove_earlier_outputs(*paths: Path, scratch_prefix: str | None = None) -> None:
    """Removes these files, the partial files that killed jobs left, and folders next to them whose names begin with
    `scratch_prefix`."""
    for path in paths:
        for leftover in (path, *path.parent.glob(f".{path.name}.*.partial")):
            leftover.unlink(missing_ok=True)
        if scratch_prefix:
            for folder in path.parent.glob(f"{scratch_prefix}*"):
                shutil.rmtree(folder)


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 text file, whole or not at all."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    """Writes indented JSON; keys keep their order, and NaN is an error, since JSON has none."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def write_table(path: Path, table) -> None:
    """Writes a DataFrame as CSV for people, with clean cells, and as Parquet, with the same stem, for programs."""
    from kernel_tables.clean_text import with_clean_cells  # imports pandas, which planning does without

    with replacing(path.with_suffix(".csv")) as partial:
        with_clean_cells(table).to_csv(partial, index=False)
    with replacing(path.with_suffix(".parquet")) as partial:
        table.to_parquet(partial, index=False)
