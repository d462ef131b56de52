"""Compares the tables of docs/example-h200 by value with those of a commit: `python -m docs.compare_tables REF`.

Every column of every table at the commit must have the same values here, under its name in docs/renamed_tables.toml.
Tables without rows may be absent, rows may be in another order, and further tables and columns are ignored.
"""

import io
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from kernel_tables.clean_text import with_clean_cells
from workflow.command import run_command

DOCS = Path(__file__).parent
EXAMPLE = DOCS / "example-h200"
SUFFIXES = (".parquet", ".csv")  # the first of them is read
EVERY_TABLE = "*"


@dataclass(frozen=True)
class NewNames:
    """New names of tables and columns. The name of a table is its path without suffix."""

    tables: dict[str, str] = field(default_factory=dict)  # by old name
    columns: dict[str, dict[str, str]] = field(default_factory=dict)  # by table or EVERY_TABLE; "": a removed column

    def column(self, table: str, name: str) -> str:
        """The new name of a column, "" if it was removed."""
        return self.columns.get(table, {}).get(name, self.columns.get(EVERY_TABLE, {}).get(name, name))


def main(ref: str) -> None:
    """Compares with a commit, such as main."""
    with TemporaryDirectory() as scratch:
        old = _example_at(ref, Path(scratch))
        new_names = NewNames(**tomllib.loads((DOCS / "renamed_tables.toml").read_text()))
        lines = list(differences(old, EXAMPLE, new_names))
        old_count, new_count = len(tables_below(old)), len(tables_below(EXAMPLE))
    for line in lines:
        print(line)
    print(f"{old_count} tables at {ref}, {new_count} here; {len(lines) or 'no'} difference(s)")
    sys.exit(bool(lines))


def differences(old: Path, new: Path, new_names: NewNames) -> Iterator[str]:
    """One line per table below `old` that is absent below `new`, or has other values there."""
    new_paths = tables_below(new)
    for name, path in tables_below(old).items():
        new_name = new_names.tables.get(name, name)
        if new_name not in new_paths:
            if len(_text_values(path)):
                yield f"{name}: there is no {new_name}"
        elif problem := _difference(name, path, new_paths[new_name], new_names):
            yield f"{name}: {problem}"


def tables_below(folder: Path) -> dict[str, Path]:
    """The file of each table, by its path without suffix."""
    paths = [path for suffix in reversed(SUFFIXES) for path in folder.rglob(f"*{suffix}")]
    return dict(sorted((str(path.relative_to(folder).with_suffix("")), path) for path in paths))


def _difference(name: str, path: Path, new_path: Path, new_names: NewNames) -> str | None:
    """How the table in `path` differs from the one in `new_path`; None if it does not."""
    old, new = _text_values(path), _text_values(new_path, as_csv=path.suffix == ".csv")
    columns = {column: new_column for column in old if (new_column := new_names.column(name, column))}
    if absent := [column for column in columns.values() if column not in new]:
        return f"no column(s) {', '.join(absent)}"
    if len(old) != len(new):
        return f"{len(new)} rows instead of {len(old)}"
    old, new = old[[*columns]].rename(columns=columns), new[[*columns.values()]]
    differing = _differing_columns(old, new)
    if differing:  # the rows may be in another order
        differing = _differing_columns(_sorted(old), _sorted(new))
    return f"other values in {', '.join(differing)}" if differing else None


def _differing_columns(old: pd.DataFrame, new: pd.DataFrame) -> list[str]:
    return [name for name in old if not old[name].equals(new[name])]


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(list(table), ignore_index=True) if len(table.columns) else table


def _text_values(path: Path, *, as_csv: bool = False) -> pd.DataFrame:
    """A table with each value as text, 4 for 4.0. `as_csv`: texts of a Parquet file are cleaned as in CSV files."""
    csv = path
    if path.suffix == ".parquet":
        table = pd.read_parquet(path, dtype_backend="numpy_nullable")  # keeps integers exact
        csv = io.StringIO((with_clean_cells(table) if as_csv else table).to_csv(index=False))
    values = pd.read_csv(csv, dtype=str, keep_default_na=False)
    return values.replace(r"^(-?\d+)\.0$", r"\1", regex=True)


def _example_at(ref: str, scratch: Path) -> Path:
    """Unpacks the example of a commit below `scratch`, and returns its folder."""
    path = EXAMPLE.relative_to(DOCS.parent)
    command = ["git", "-C", str(DOCS.parent), "archive", "--format=tar", ref, str(path)]
    content = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / path


if __name__ == "__main__":
    run_command(main)
