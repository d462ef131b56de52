"""What bisections found to fit, of the runs for which somebody asked (workflow/scripts/largest.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from profile_grid.errors import OutsideError
from profile_grid.largest.fitting import FITTED, file_name
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import TableSpec, columns

NUMBERS = ("largest", "fails_at", "predicted", "multiple_of", "limit_bytes", "tries")


def largest_table(plan: Iterable[Mapping[str, Any]], folder: Path) -> pd.DataFrame:
    """One row per run of the plan and dimension whose largest value was measured. Raises OutsideError where a file is
    damaged or was measured with another specification."""
    rows = []
    for entry in plan:
        paths = (folder / file_name(entry["run"], dimension) for dimension in FITTED)
        rows += [[*(entry[key] for key in LEADING), *_found(path, entry)] for path in paths if path.exists()]
    return LARGEST.table(rows)


def _found(path: Path, entry: Mapping[str, Any]) -> tuple:
    """The dimension and the figures of one file."""
    try:
        record = json.loads(path.read_text())
        same = record["specification"] == entry["specifications"][TIMING.name]
        misses = [attempt["value"] for attempt in record["tries"] if not attempt["fits"]]
        figures = {**record, "fails_at": min(misses, default=None), "tries": len(record["tries"])}
        row = record["dimension"], *(figures[name] for name in NUMBERS)
    except (ValueError, KeyError, TypeError) as error:
        raise OutsideError(f"{path} is damaged ({error!r}); {_again(path, entry)}") from None
    if not same:
        raise OutsideError(f"{path} was measured with other settings; {_again(path, entry)}")
    return row


def _again(path: Path, entry: Mapping[str, Any]) -> str:
    run = entry["run"]
    command = f"python -m workflow.scripts.largest --run {run} --dimension {path.stem.removeprefix(f'{run}_')}"
    return f"measure it again, or remove it: {command}"


LARGEST = TableSpec(
    "largest",
    "One row per run and dimension whose largest value that fits was looked for, by workflow.scripts.largest",
    columns("""
    fitted | text | | the dimension: context_length or batch_size, all else as in the run
    largest | int | | largest value that fits, measured by bisection; 0 where none does
    fails_at | int | | least value that was tried and does not fit
    predicted | int | | largest value that fits by the shapes; empty for other people's models
    multiple_of | int | | the values that were tried are multiples of this
    limit_bytes | int | B | memory that there is: the GPU's, or what was said
    tries | int | | processes that were run for it
"""),
)
TABLES = (LARGEST,)
