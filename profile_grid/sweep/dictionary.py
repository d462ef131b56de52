"""What every column of the tables of the attention sweep means."""

from __future__ import annotations

import pandas as pd

from profile_grid.documents.dictionary import check_columns, sections
from profile_grid.study.sweep_dimensions import ATTENTION_SWEEP, SWEEP_ROWS
from profile_grid.sweep import rows, table

DESCRIBED = {ATTENTION_SWEEP: table.DESCRIBED, SWEEP_ROWS: rows.DESCRIBED}


def check_sweep_table(name: str, found: pd.DataFrame) -> None:
    """Raises UndocumentedColumn where a table has other columns than are described."""
    check_columns(name, found, [column.name for column in DESCRIBED[name].columns])


def dictionary() -> str:
    """The data dictionary of a sweep, in Markdown."""
    return "\n\n".join(["# Tables of the attention sweep", *sections(DESCRIBED)]) + "\n"
