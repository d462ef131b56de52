"""The tables that a stage makes of one run, with the status that says whether they are complete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from profile_grid.results.capture_identity import difference
from profile_grid.results.results import COMPLETE, INCOMPLETE, StageResult

if TYPE_CHECKING:
    import pandas as pd


class RunTables(NamedTuple):
    """What the tables.py of a stage gives of a run; the tables have no rows unless the status allows it."""

    status: dict  # status, reason, warnings: as the status file has them
    tables: dict[str, pd.DataFrame]  # by name


def tables_status(status: str, reason: str | None = None, warnings: Sequence[str] = ()) -> dict:
    """What a status file says, besides what the tables were made from."""
    return {"status": status, "reason": reason, "warnings": list(warnings)}


def status_without_tables(result: StageResult, path: Path, what: str = "capture") -> dict | None:
    """The status where no tables can be made of a file: it belongs to another run, or the stage did not end well; None
    where they can. `what` names what the file holds."""
    if reason := difference(result, path):
        return tables_status(INCOMPLETE, f"{reason}: it is not the {what} of this run")
    return None if result.status == COMPLETE else tables_status(result.status, result.reason)
