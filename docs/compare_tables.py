"""Whether each table of docs/example-h200 has the values that it has at a commit: `python -m docs.compare_tables REF`.

Each column of each table there must be here with the same values; docs/renamed_tables.toml says what was renamed since.
A table without rows may be absent. Tables and columns that were added are counted, rows may be in another order.
"""

from __future__ import annotations

import argparse
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
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from kernel_tables.clean_text import with_clean_cells

DOCS = Path(__file__).parent
EXAMPLE = DOCS / "example-h200"
SUFFIXES = (".parquet", ".csv")  # read is the first that is there
EVERY_TABLE = "*"


@dataclass(frozen=True)
class Renamed:
    """Tables by their path without suffix, and columns by table; "" where a column is no longer kept."""

    tables: dict[str, str] = field(default_factory=dict)
    columns: dict[str, dict[str, str]] = field(default_factory=dict)

    def column(self, table: str, name: str) -> str:
        """What a column of an old table is called now."""
        return self.columns.get(table, {}).get(name, self.columns.get(EVERY_TABLE, {}).get(name, name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ref", help="the commit to compare with")
    ref = parser.parse_args().ref
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
    """One line for each table below `old` that is not below `new` with the same values, saying why."""
    there = tables_below(new)
    for name, path in tables_below(old).items():
        new_name = renamed.tables.get(name, name)
        if new_name not in there:
            if _read(path).num_rows:
                yield f"{name}: there is no {new_name}"
        elif problem := _difference(name, path, there[new_name], renamed):
            yield f"{name}: {problem}"


def tables_below(folder: Path) -> dict[str, Path]:
    """The file of each table, by its path without suffix."""
    found = {}
    for suffix in reversed(SUFFIXES):
        found |= {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob(f"*{suffix}"))}
    return dict(sorted(found.items()))


def _difference(name: str, path: Path, new_path: Path, renamed: Renamed) -> str | None:
    old = _read(path)
    new = _as_csv(new_path) if path.suffix == ".csv" and new_path.suffix != ".csv" else _read(new_path)
    names = {column: renamed.column(name, column) for column in old.column_names}
    names = {column: new_name for column, new_name in names.items() if new_name}
    if absent := [new_name for new_name in names.values() if new_name not in new.column_names]:
        return f"no column(s) {', '.join(absent)}"
    if old.num_rows != new.num_rows:
        return f"{new.num_rows} rows instead of {old.num_rows}"
    old, new = old.select([*names]).rename_columns([*names.values()]), new.select([*names.values()])
    differing = _differing_columns(old, new)
    if differing:
        differing = _differing_columns(_sorted(old), _sorted(new))
    return f"other values in {', '.join(differing)}" if differing else None


def _differing_columns(old: pa.Table, new: pa.Table) -> list[str]:
    return [name for name in old.column_names if not _equal(_plain(old[name]), _plain(new[name]))]


def _equal(old: pa.Array, new: pa.Array) -> bool:
    if old.equals(new):
        return True
    if old.null_count == len(old) or new.null_count == len(new):
        return old.null_count == new.null_count
    if old.type == new.type:
        return pa.types.is_string(old.type) and _without_zero(old).equals(_without_zero(new))
    try:
        return old.cast(pa.float64()).equals(new.cast(pa.float64()))  # exact, or raises
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # words are no numbers
        return False


def _without_zero(texts: pa.Array) -> pa.Array:
    """Texts of a CSV file with 4 for 4.0, which pandas writes where a column of integers has an empty cell."""
    return pc.replace_substring_regex(texts, r"^(-?\d+)\.0$", r"\1")


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array; texts as such, whatever they are stored as, and what is no number as absent."""
    array = column.combine_chunks()
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_floating(array.type):
        return pc.if_else(pc.is_nan(array), None, array)
    return array.cast(pa.string()) if pa.types.is_large_string(array.type) else array


def _sorted(table: pa.Table) -> pa.Table:
    plain = pa.table({name: _plain(table[name]) for name in table.column_names})
    keys = [(name, "ascending") for name in plain.column_names if not pa.types.is_null(plain[name].type)]
    return plain.sort_by(keys)


def _read(path: Path) -> pa.Table:
    return pq.read_table(path) if path.suffix == ".parquet" else _texts(path.read_bytes())


def _as_csv(path: Path) -> pa.Table:
    """The texts that the table's CSV file would hold."""
    return _texts(with_clean_cells(pd.read_parquet(path)).to_csv(index=False).encode())


def _texts(content: bytes) -> pa.Table:
    names = pa.csv.read_csv(io.BytesIO(content)).column_names
    return pa.csv.read_csv(
        io.BytesIO(content), parse_options=pa.csv.ParseOptions(newlines_in_values=True),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
        ),
    )  # fmt: skip


def _example_at(ref: str, scratch: Path) -> Path:
    place = EXAMPLE.relative_to(DOCS.parent)
    command = ["git", "-C", str(DOCS.parent), "archive", "--format=tar", ref, str(place)]
    packed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / place


if __name__ == "__main__":
    main()
