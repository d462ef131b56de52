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
class Renamed:
    """New names of tables, which are paths without suffix, and of columns by table; "" for a column that was
    removed."""

    tables: dict[str, str] = field(default_factory=dict)
    columns: dict[str, dict[str, str]] = field(default_factory=dict)

    def column(self, table: str, name: str) -> str:
        """The new name of a column."""
        return self.columns.get(table, {}).get(name, self.columns.get(EVERY_TABLE, {}).get(name, name))


def main(ref: str) -> None:
    """Compares with a commit, such as main."""
    with TemporaryDirectory() as scratch:
        old = _example_at(ref, Path(scratch))
        renamed = Renamed(**tomllib.loads((DOCS / "renamed_tables.toml").read_text()))
        differing = list(differences(old, EXAMPLE, renamed))
        for line in differing:
            print(line)
        count, now = len(tables_below(old)), len(tables_below(EXAMPLE))
    print(f"{count} tables at {ref}, {now} here; {len(differing) or 'no'} difference(s)")
    sys.exit(bool(differing))


def differences(old: Path, new: Path, renamed: Renamed) -> Iterator[str]:
    """One line per table below `old` that is absent or has other values below `new`, with the reason."""
    new_paths = tables_below(new)
    for name, path in tables_below(old).items():
        new_name = renamed.tables.get(name, name)
        if new_name not in new_paths:
            if len(_texts(path)):
                yield f"{name}: there is no {new_name}"
        elif problem := _difference(name, path, new_paths[new_name], renamed):
            yield f"{name}: {problem}"


def tables_below(folder: Path) -> dict[str, Path]:
    """The file of each table, by its path without suffix."""
    paths = [path for suffix in reversed(SUFFIXES) for path in folder.rglob(f"*{suffix}")]
    return dict(sorted((str(path.relative_to(folder).with_suffix("")), path) for path in paths))


def _difference(name: str, path: Path, new_path: Path, renamed: Renamed) -> str | None:
    old, new = _texts(path), _texts(new_path, as_csv=path.suffix == ".csv")
    names = {column: new_name for column in old if (new_name := renamed.column(name, column))}
    if absent := [new_name for new_name in names.values() if new_name not in new]:
        return f"no column(s) {', '.join(absent)}"
    if len(old) != len(new):
        return f"{len(new)} rows instead of {len(old)}"
    old, new = old[[*names]].set_axis([*names.values()], axis=1), new[[*names.values()]]
    differing = _differing_columns(old, new) and _differing_columns(_sorted(old), _sorted(new))
    return f"other values in {', '.join(differing)}" if differing else None


def _differing_columns(old: pd.DataFrame, new: pd.DataFrame) -> list[str]:
    return [name for name in old if not old[name].equals(new[name])]


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(list(table), ignore_index=True) if len(table.columns) else table


def _texts(path: Path, *, as_csv: bool = False) -> pd.DataFrame:
    """A table with each value as the text of a CSV file, and 4 for 4.0; `as_csv`: with the cells that are safe in
    one."""
    text = path
    if path.suffix == ".parquet":
        table = pd.read_parquet(path, dtype_backend="numpy_nullable")  # keeps integers exact
        text = io.StringIO((with_clean_cells(table) if as_csv else table).to_csv(index=False))
    values = pd.read_csv(text, dtype=str, keep_default_na=False)
    return values.replace(r"^(-?\d+)\.0$", r"\1", regex=True)


def _example_at(ref: str, scratch: Path) -> Path:
    """The example's folder of a commit, unpacked below `scratch`."""
    path = EXAMPLE.relative_to(DOCS.parent)
    command = ["git", "-C", str(DOCS.parent), "archive", "--format=tar", ref, str(path)]
    packed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / path


if __name__ == "__main__":
    run_command(main)
