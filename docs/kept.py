"""Reads and writes the committed tables and comparisons below docs/; a table without rows has no file."""

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profile_grid.comparing.results import Results
from profile_grid.comparing.written import write_comparison
from profile_grid.files import replacing
from profile_grid.study.dimensions import BY_KEY
from profile_grid.study.stages import NOT_ASKED
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables


class KeptTables(TablesOnDisk):
    """The tables in a folder by name; a declared table without a file is empty."""

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._read and name in declared_tables() and not (self.folder / f"{name}.parquet").exists():
            self._read[name] = as_declared(name, None)
        return super().__getitem__(name)


def write_kept(path: Path, table: pd.DataFrame) -> None:
    """Writes a table, or removes its file if it has no rows."""
    if table.empty:
        path.unlink(missing_ok=True)
        return
    rows = pa.Table.from_pandas(table, preserve_index=False)
    encodings = {field.name: encoding for field in rows.schema if (encoding := _encoding(field.type))}
    with replacing(path) as partial:
        pq.write_table(
            rows, partial, compression="zstd", compression_level=19, column_encoding=encodings,
            use_dictionary=[name for name in rows.column_names if name not in encodings],
            write_statistics=False, store_schema=False,  # these need more bytes than the values of a small table
        )  # fmt: skip


def _encoding(kind: pa.DataType) -> str | None:
    if pa.types.is_integer(kind):
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if pa.types.is_floating(kind) else None


def as_declared(name: str, table: pd.DataFrame | None) -> pd.DataFrame:
    """The merged table of this name with the declared columns. An absent dimension gets its default, an absent stage
    "not requested" and no time; other absent columns are empty. Without a table, it has no rows."""
    names = declared_tables()[name].all_names
    table = pd.DataFrame(columns=names) if table is None else table
    absent = {column: _unmeasured(name, column) for column in names if column not in table}
    return table.assign(**absent)[names]


def _unmeasured(table: str, column: str) -> object:
    if column in BY_KEY:
        return BY_KEY[column].default
    if column.endswith("_status"):
        return NOT_ASKED
    return 0.0 if table == "cost" else None


COMPARISONS = Path(__file__).parent / "example-h200" / "comparison"
SIDES = ("before", "after")  # folders of a comparison
KEPT = (".md", ".svg")  # files of a comparison that are committed, in addition to tables with rows


def comparisons() -> list[Path]:
    """The folders of the committed comparisons."""
    return sorted(path.parent for path in COMPARISONS.glob(f"*/{SIDES[0]}"))


def make_comparison(kept: Path, folder: Path) -> dict[str, pd.DataFrame]:
    """Writes all files of a comparison into a folder; returns its tables by name."""
    return write_comparison(*(_side(kept / side) for side in SIDES), folder)


def remake_comparison(kept: Path) -> None:
    """Writes the committed files of a comparison."""
    with TemporaryDirectory() as scratch:
        for name, table in make_comparison(kept, Path(scratch)).items():
            write_kept(kept / f"{name}.parquet", table)
        for path in Path(scratch).iterdir():
            if path.suffix in KEPT:
                shutil.copyfile(path, kept / path.name)


def _side(folder: Path) -> Results:
    provenance = json.loads((folder / "tables" / "provenance.json").read_text())
    return Results(folder, KeptTables(folder / "tables"), provenance)
