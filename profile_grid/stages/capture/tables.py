"""The tables of one run from its captures: those of rank 0, and of a run on several GPUs those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from profile_grid.results.capture_identity import difference
from profile_grid.results.results import COMPLETE, INCOMPLETE, StageResult
from profile_grid.stages.capture import nsys_reports, rank_tables, step_tables

DESCRIBED = step_tables.DESCRIBED | rank_tables.DESCRIBED


def run_tables(
    capture: StageResult, folder: Path, extra_rules: Sequence[dict] = (), diagnosis_rules: Sequence[dict] = ()
) -> tuple[dict, dict[str, pd.DataFrame]]:
    """The status of a run's capture and its tables, which are empty unless it is whole; `folder` holds the captures of
    all its ranks, which have to be those that were captured. `extra_rules` are classes of one's own, `diagnosis_rules`
    what else the diagnosis looks for."""
    files = rank_tables.files_of(capture)
    for name in files:
        if reason := difference(capture, folder / name):
            return step_tables.status_of(
                INCOMPLETE, f"{reason}: it is not the capture of this run", []
            ), empty_run_tables()
    status, tables = step_tables.tables_of_file(capture, folder / files[0], extra_rules, diagnosis_rules)
    if status["status"] != COMPLETE or len(files) == 1:
        return status, tables | rank_tables.empty_tables()
    reason, of_ranks = rank_tables.tables_of_ranks(capture, [folder / name for name in files], extra_rules)
    if reason:
        return step_tables.status_of(INCOMPLETE, reason, status["warnings"]), empty_run_tables()
    return status, tables | of_ranks


def empty_run_tables() -> dict[str, pd.DataFrame]:
    """The tables of a run without rows."""
    return step_tables.empty_tables() | rank_tables.empty_tables()


def run_texts(capture: StageResult, folder: Path) -> dict[str, str]:
    """nsys's own reports of the capture of rank 0, by file."""
    return nsys_reports.reports_of_capture(capture, folder)
