"""The tables that a stage makes of one run, with the status that says whether they are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pandas as pd


class RunTables(NamedTuple):
    """The tables of a stage of one run. Tables without rows may be left out; with a status other than complete and out
    of memory, no table has rows."""

    status: dict  # status, reason, warnings: the content of the status file
    tables: dict[str, pd.DataFrame]  # by name


def tables_status(status: str, reason: str | None = None, warnings: Sequence[str] = ()) -> dict:
    """The content of a status file."""
    return {"status": status, "reason": reason, "warnings": list(warnings)}
