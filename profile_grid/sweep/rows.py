"""The rows of the attention sweep: their results as they were measured, and what ran each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from profile_grid.measuring.freshness import stale_reason
from profile_grid.measuring.results import read_origin
from profile_grid.measuring.sweep import RowResult, read_row
from profile_grid.merging.measured_runs import StaleRun
from profile_grid.merging.provenance import origin
from profile_grid.study.dimensions import MACHINE_DIMENSIONS
from profile_grid.study.stages import SWEEP
from profile_grid.study.sweep_dimensions import DIMENSIONS, KEYS
from profile_grid.study.table_spec import INT, TEXT, Column, TableSpec, column_of, columns

OF_A_PROFILER = ("backend", "nsys")  # none runs here
FACTS = tuple(one for one in MACHINE_DIMENSIONS if one.key not in OF_A_PROFILER)


def read_rows(plan: list[dict], folder: Path, sources: str) -> dict[str, RowResult]:
    """The result of every row of the plan by name; `folder` holds a folder for each, `sources` is the digest of what
    measures it now. Raises BadResult, or StaleRun where a result is not what would be measured now."""
    rows = {}
    for entry in plan:
        path = folder / entry["run"] / SWEEP.result
        if reason := stale_reason(read_origin(path), entry["specification"], sources):
            raise StaleRun(path, reason)
        rows[entry["run"]] = read_row(path)
    return rows


def rows_table(rows: Mapping[str, RowResult]) -> pd.DataFrame:
    """One line per row: its dimensions, what ran it, and what it took."""
    return pd.DataFrame([_line(name, row) for name, row in rows.items()]).convert_dtypes()


def _line(name: str, row: RowResult) -> dict:
    program = row.program
    return {
        "run": name,
        **{key: program.spec["dimensions"][key] for key in KEYS},
        "cells": len(program.cells),
        **{one.key: getattr(program.machine, one.key) for one in FACTS},
        "device_total_bytes": program.device_total_bytes,
        "seconds": row.seconds["all"],
        "note": "; ".join(row.notes) or None,
        "started_utc": row.started_utc,
    }


def sweep_provenance(rows: Mapping[str, RowResult], plan: dict) -> dict:
    """Where the figures of a sweep come from."""
    table = rows_table(rows)
    ended = pd.Series([cell.status for row in rows.values() for cell in row.program.cells]).value_counts()
    cells = {status: int(count) for status, count in ended.items()}
    checkouts = [vars(row.git) for row in rows.values()]
    return {"rows": len(table), "cells": cells, **origin(table, plan, checkouts, table["started_utc"])}


ROW_COLUMN = Column("run", TEXT, "", "the name of the row: its dimensions in one; the folder below results/sweep")
SWEEP_ROWS_TABLE = TableSpec(
    "sweep_rows",
    "One row per process of the attention sweep, which measures a row of its table: every context length",
    (
        ROW_COLUMN,
        *map(column_of, DIMENSIONS),
        Column("cells", INT, "", "context lengths that it went through"),
        *map(column_of, FACTS),
        *columns("""
    device_total_bytes | int | B | memory of the GPU; empty on a CPU
    seconds | float | s | what the process took, without waiting for its GPU
    note | text | | what was noted before or while it ran
    started_utc | text | | when it began
"""),
    ),
    leading=(),
)
