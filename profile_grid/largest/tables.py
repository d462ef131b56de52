"""The table of the largest values that fit, from the files that workflow/scripts/largest.py writes."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from profile_grid.errors import OutsideError
from profile_grid.largest.fitting import SEARCHABLE_DIMENSIONS, file_name
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import TableSpec, columns


def largest_table(plan: Iterable[Mapping[str, Any]], folder: Path) -> pd.DataFrame:
    """One row per run and dimension that was searched. OutsideError for a damaged file or another specification."""
    rows = []
    for entry in plan:
        for dimension in SEARCHABLE_DIMENSIONS:
            path = folder / file_name(entry["run"], dimension)
            if path.exists():
                rows.append({key: entry[key] for key in LEADING} | _search_result(path, entry, dimension))
    return LARGEST.table(rows)


def _search_result(path: Path, entry: Mapping[str, Any], dimension: str) -> dict[str, Any]:
    """The columns of LARGEST from one file."""
    command = f"python -m workflow.scripts.largest --run {entry['run']} --dimension {dimension}"
    remedy = f"remove it, or measure it again with: {command}"
    try:
        record = json.loads(path.read_text())
        has_same_settings = record["specification"] == entry["specifications"][TIMING.name]
        failed = [attempt["value"] for attempt in record["tries"] if not attempt["fits"]]
        row = {name: record[name] for name in ("largest", "predicted", "multiple_of", "limit_bytes")}
        row |= {"fitted": record["dimension"], "fails_at": min(failed, default=None), "tries": len(record["tries"])}
    except (ValueError, KeyError, TypeError) as error:
        raise OutsideError(f"{path} is damaged ({error!r}); {remedy}") from None
    if not has_same_settings:
        raise OutsideError(f"{path} was measured with other settings; {remedy}")
    return row


LARGEST = TableSpec(
    "largest",
    "One row per run and dimension: the largest value that fits, measured by workflow.scripts.largest",
    columns("""
    fitted | text | | the dimension: context_length or batch_size; all others are those of the run
    largest | int | | largest value that fits, measured by bisection; 0 if none does
    fails_at | int | | smallest value tried that does not fit
    predicted | int | | largest value that is predicted to fit, from the shapes; empty for custom models
    multiple_of | int | | only multiples of this were tried
    limit_bytes | int | B | memory of the GPU, or --memory-gib
    tries | int | | number of processes
"""),
)
TABLES = (LARGEST,)
