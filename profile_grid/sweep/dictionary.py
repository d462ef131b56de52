"""What every column of the tables of the attention sweep means."""

from __future__ import annotations

import pandas as pd

from profile_grid.documents.dictionary import sections
from profile_grid.sweep import rows, table

TABLES = {one.name: one for one in (table.ATTENTION_SWEEP_TABLE, rows.SWEEP_ROWS_TABLE)}


def check_sweep_table(name: str, found: pd.DataFrame) -> None:
    """Raises WrongTable where a table is not as it is declared."""
    TABLES[name].check(found)


def dictionary() -> str:
    """The data dictionary of a sweep, in Markdown."""
    return "\n\n".join(["# Tables of the attention sweep", *sections(TABLES.values())]) + "\n"
