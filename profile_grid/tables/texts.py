"""Each text of a large table stored once: a million rows have a few hundred different ones.

Arrow calls this dictionary encoding, pandas categories. Categories are in alphabetical order, so sorting by them sorts
by text; group by them with `observed=True`.
"""

from collections.abc import Iterable

import numpy as np
import pandas as pd
import pyarrow as pa

NULLABLE = {pa.int64(): pd.Int64Dtype()}


def dictionary_encoded(table: pa.Table) -> pa.Table:
    """The table with dictionary-encoded texts."""
    columns = [column.dictionary_encode() if _is_text(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def with_categories(table: pa.Table) -> pd.DataFrame:
    """The table with texts as categories; 64-bit integers stay integers even if some are missing."""
    columns = zip(table.column_names, dictionary_encoded(table).columns, strict=True)
    return pd.DataFrame({name: _in_pandas(column) for name, column in columns})


def repeated_column(values: Iterable, times: np.ndarray) -> pd.Series:
    """Each value repeated as often as `times` says, as by numpy.repeat; texts as categories."""
    column = pd.Series(list(values))
    column = column if pd.api.types.is_numeric_dtype(column) else column.astype("category")
    return column.repeat(times).reset_index(drop=True)


def as_texts(table: pd.DataFrame) -> pd.DataFrame:
    """The table with categories converted to text."""
    return table.astype({name: "str" for name, kind in table.dtypes.items() if isinstance(kind, pd.CategoricalDtype)})


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _in_pandas(column: pa.ChunkedArray) -> pd.Series:
    if pa.types.is_integer(column.type) and column.null_count:
        return column.to_pandas(types_mapper=NULLABLE.get)
    values = column.to_pandas()
    if not pa.types.is_dictionary(column.type):
        return values
    return values.cat.reorder_categories(sorted(values.cat.categories))
