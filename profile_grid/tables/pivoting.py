"""Wide tables that never put two rows into one cell, and tables split by the dimensions that they do not show."""

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from profile_grid.errors import OutsideError
from profile_grid.quantities import ABSENT
from profile_grid.study.dimensions import BY_KEY, DIMENSIONS, KEYS, title_of


class AmbiguousCell(OutsideError):
    """Two rows belong to one cell: a dimension varies that the table does not show. The message names it."""


def pivoted(rows: pd.DataFrame, index: Sequence[str], columns: str, values: Sequence[str]) -> pd.DataFrame:
    """The rows as a wide table: a row per `index`, and for each of `values` a column per value of `columns`.

    Raises AmbiguousCell if two rows belong to one cell; nothing is averaged. Empty cells are NaN. Rows and columns are
    in order of appearance.
    """
    keys = [*index, columns]
    duplicates = rows[rows.duplicated(keys, keep=False)]
    if not duplicates.empty:
        hidden_keys = [key for key in KEYS if key in rows.columns and key not in keys]
        differing = [key for key in hidden_keys if duplicates[key].nunique() > 1]
        values_text = ", ".join(str(duplicates.iloc[0][key]) for key in keys)
        raise AmbiguousCell(
            f"{len(duplicates)} rows share a place ({values_text}) in a table of {columns} by {', '.join(index)};"
            f" {', '.join(differing) or 'no dimension'} differs between them and is not shown"
        )
    if rows.empty:
        return pd.DataFrame(columns=list(values))  # an empty wide table would have no columns for the values
    return unstacked(rows.set_index(keys)[list(values)], columns)


def pivoted_texts(
    rows: pd.DataFrame, index: Sequence[str], columns: str, text: Callable[[dict], str], absent: str = ABSENT
) -> pd.DataFrame:
    """A wide table as from `pivoted` with the text of each row, and `absent` where there is no row."""
    texts = rows.assign(_text=[text(row) for row in rows.to_dict("records")])
    return pivoted(texts, index, columns, ["_text"])["_text"].fillna(absent)


def unstacked(table: pd.DataFrame | pd.Series, level: str, fill_value: float | None = None) -> pd.DataFrame:
    """The table with this level of its index as columns; rows and columns are in order of appearance.

    Unstacked with sorting, then put in order: without sorting, pandas 3.0 puts values into wrong rows.
    """
    wide = table.unstack(level, fill_value=fill_value)
    rows = table.index.droplevel(level).drop_duplicates()
    names = table.index.get_level_values(level).drop_duplicates()
    columns = names if wide.columns.nlevels == 1 else [(value, name) for value in table.columns for name in names]
    return wide.loc[rows, columns]


def shown_dimensions(rows: pd.DataFrame, always_shown: Sequence[str], hidden: Sequence[str] = ()) -> list[str]:
    """The keys of the dimensions that get a column in a table of these rows: those in `always_shown`, and those that
    are not at their default in every row. Dimensions in `hidden`, or without any value, get none."""
    return [
        dimension.key
        for dimension in DIMENSIONS
        if dimension.key not in hidden
        and (rows.empty or rows[dimension.key].notna().any())
        and (dimension.key in always_shown or (rows[dimension.key] != dimension.default).any())
    ]


def split(rows: pd.DataFrame, shown_keys: Sequence[str]) -> Iterator[tuple[str, pd.DataFrame]]:
    """(title, rows) for each combination of the dimensions that vary and are not `shown_keys`, in order of appearance;
    a title is "precision bf16", or "" if no other dimension varies. Yields nothing without rows."""
    varying_keys = [key for key in KEYS if key not in shown_keys and rows[key].nunique() > 1]
    if varying_keys:
        for values, group in rows.groupby(varying_keys, sort=False, dropna=False):
            yield title_of(dict(zip(varying_keys, values, strict=True)), varying_keys), group
    elif len(rows):
        yield "", rows


def sorted_values(rows: pd.DataFrame, key: str) -> list:
    """The distinct values of a dimension in these rows, in the order that the dimension declares, others after them; if
    it declares none, numbers by size and texts in order of appearance."""
    present, dimension = list(dict.fromkeys(rows[key])), BY_KEY[key]
    if dimension.sort_key:
        return sorted(present, key=dimension.sort_key)
    if dimension.values:
        return sorted(present, key=[*dimension.values, *present].index)
    return sorted(present) if pd.api.types.is_numeric_dtype(rows[key]) else present
