"""The tables of one run from its captures: those of rank 0, and of a run on several GPUs those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from profile_grid.measuring.capture_identity import difference
from profile_grid.measuring.results import COMPLETE, INCOMPLETE, StageResult
from profile_grid.merging import rank_tables, run_tables

TABLES = (*run_tables.TABLES, *rank_tables.TABLES)


def tables_of_capture(
    capture: StageResult, folder: Path, extra_rules: Sequence[dict] = (), diagnosis_rules: Sequence[dict] = ()
) -> tuple[dict, dict[str, pd.DataFrame]]:
    """The status of a run's capture and its tables, which are empty unless it is whole; `folder` holds the captures of
    all its ranks, which have to be those that were captured. `extra_rules` are classes of one's own, `diagnosis_rules`
    what else the diagnosis looks for."""
    files = rank_tables.files_of(capture)
    for name in files:
        if reason := difference(capture, folder / name):
            return run_tables.status_of(INCOMPLETE, f"{reason}: it is not the capture of this run", []), empty_tables()
    status, tables = run_tables.tables_of_file(capture, folder / files[0], extra_rules, diagnosis_rules)
    if status["status"] != COMPLETE or len(files) == 1:
        return status, tables | rank_tables.empty_tables()
    reason, of_ranks = rank_tables.tables_of_ranks(capture, [folder / name for name in files], extra_rules)
    if reason:
        return run_tables.status_of(INCOMPLETE, reason, status["warnings"]), empty_tables()
    return status, tables | of_ranks


def empty_tables() -> dict[str, pd.DataFrame]:
    """The tables of a run without rows."""
    return run_tables.empty_tables() | rank_tables.empty_tables()
