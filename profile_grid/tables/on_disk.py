"""The tables in results/tables, each read on first use. The large ones, joined from tables of single runs, have
categories instead of text.

Every table is declared in the module that makes it; `declared_tables` reads the declarations."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType

import pandas as pd
import pyarrow.parquet as pq

from profile_grid.study import catalogue, dimensions, table_spec
from profile_grid.tables.texts import with_categories

# By table, the columns to read for summaries, figures and page: without mean, shortest and longest time of a row.
KERNEL_COLUMNS = ("step", "phase", "range", "kernel", "class", "launches", "total_ns")
COLUMNS_FOR_SUMS = {"kernels": (*dimensions.LEADING, *KERNEL_COLUMNS)}
TEXT_KEYS = [key for key in dimensions.KEYS if not dimensions.BY_KEY[key].is_number]  # their values are texts


@cache
def declared_tables() -> dict[str, table_spec.TableSpec]:
    """The declaration of every table by name, in the catalogue's order."""
    by_name = {table.name: table for module in catalogue.MODULES_OF_TABLES for table in import_module(module).TABLES}
    return {name: by_name[name] for name in catalogue.TABLE_NAMES}


def empty_table(name: str) -> pd.DataFrame:
    """The declared table with this name, without rows."""
    return pd.DataFrame(columns=declared_tables()[name].all_names)


class TablesOnDisk(Mapping):
    """The Parquet tables in a folder by name, each read once, on first use.

    `columns` has, by table, the columns to read; of other tables all are read. Raises WrongTable if a table differs
    from its declaration in `declared`; tables that are not in it are not checked. A table in `declared` without a file
    is empty.
    """

    def __init__(
        self, folder: Path, columns: Mapping[str, Sequence[str]] = MappingProxyType({}),
        declared: Mapping[str, table_spec.TableSpec] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.folder, self.columns, self.declared = folder, columns, declared
        self._read: dict[str, pd.DataFrame] = {}

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._read:
            path, columns = self.folder / f"{name}.parquet", self.columns.get(name)
            if path.exists():
                table = read_table(path, columns)
                if name in self.declared:
                    self.declared[name].check(table, columns)
            elif name in self.declared:
                table = empty_table(name)
            else:
                raise KeyError(name)
            self._read[name] = table
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in sorted(self.folder.glob("*.parquet")))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """The table in a Parquet file, with these columns or all."""
    column_list = None if columns is None else list(columns)
    if path.stem in catalogue.RUN_TABLE_NAMES:
        table = with_categories(pq.read_table(path, columns=column_list))
    else:
        table = pd.read_parquet(path, columns=column_list)
    integer_keys = [key for key in TEXT_KEYS if key in table and pd.api.types.is_integer_dtype(table[key])]
    return table.astype(dict.fromkeys(integer_keys, "str"))  # older tables have numbers there
