"""The tables of one run from its captures: those of rank 0, and of a run on several GPUs those of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from profile_grid.results.capture_identity import difference
from profile_grid.results.results import COMPLETE, INCOMPLETE, StageResult
from profile_grid.results.run_tables import RunTables, tables_status
from profile_grid.stages.capture import nsys_reports, rank_tables, step_tables

TABLES = (*step_tables.TABLES, *rank_tables.TABLES)


def run_tables(
    capture: StageResult, folder: Path, extra_rules: Sequence[dict] = (), diagnosis_rules: Sequence[dict] = ()
) -> RunTables:
    """The tables of a run's captures, without rows unless all are complete. `folder` holds the captures of all its
    ranks; `extra_rules` are custom kernel classes, `diagnosis_rules` custom rules of the diagnosis."""
    files = rank_tables.files_of(capture)
    for name in files:
        if reason := difference(capture, folder / name):
            status = tables_status(INCOMPLETE, f"{reason}: it is not the capture of this run")
            return RunTables(status, empty_run_tables())
    status, tables = step_tables.tables_of_file(capture, folder / files[0], extra_rules, diagnosis_rules)
    if status["status"] != COMPLETE or len(files) == 1:
        return RunTables(status, tables | rank_tables.empty_tables())
    reason, of_ranks = rank_tables.tables_of_ranks(capture, [folder / name for name in files], extra_rules)
    if reason:
        return RunTables(tables_status(INCOMPLETE, reason, status["warnings"]), empty_run_tables())
    return RunTables(status, tables | of_ranks)


def empty_run_tables() -> dict[str, pd.DataFrame]:
    """The tables of a run without rows."""
    return step_tables.empty_tables() | rank_tables.empty_tables()


def run_texts(capture: StageResult, folder: Path) -> dict[str, str]:
    """nsys's own reports of the capture of rank 0, by file."""
    return nsys_reports.reports_of_capture(capture, folder)
