"""The tables that a stage makes of one run, with the status that says whether they are complete."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from profile_grid.results import capture_identity, results

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


def status_without_tables(result: results.StageResult, path: Path, content: str = "capture") -> dict | None:
    """The content of the status file if no tables can be made from the file at `path`, because it belongs to another
    run or the stage has no numbers; None if they can. `content` names the file's content in the reason."""
    if reason := capture_identity.identity_difference(result, path):
        return tables_status(results.INCOMPLETE, f"{reason}: it is not the {content} of this run")
    return None if result.status == results.COMPLETE else tables_status(result.status, result.reason)
