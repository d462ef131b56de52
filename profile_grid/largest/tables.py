"""The table of the largest values that fit, from the searches of workflow/scripts/largest.py."""

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
    """One row per run of the plan and dimension with a search. Raises OutsideError if a file is damaged or has another
    specification."""
    rows = []
    for entry in plan:
        paths = (folder / file_name(entry["run"], dimension) for dimension in FITTED)
        rows += [[*(entry[key] for key in LEADING), *_search_result(path, entry)] for path in paths if path.exists()]
    return LARGEST.table(rows)


def _search_result(path: Path, entry: Mapping[str, Any]) -> tuple:
    """The dimension and the numbers of one file."""
    try:
        record = json.loads(path.read_text())
        same = record["specification"] == entry["specifications"][TIMING.name]
        misses = [attempt["value"] for attempt in record["tries"] if not attempt["fits"]]
        figures = {**record, "fails_at": min(misses, default=None), "tries": len(record["tries"])}
        row = record["dimension"], *(figures[name] for name in NUMBERS)
    except (ValueError, KeyError, TypeError) as error:
        raise OutsideError(f"{path} is damaged ({error!r}); {_remedy(path, entry)}") from None
    if not same:
        raise OutsideError(f"{path} was measured with other settings; {_remedy(path, entry)}")
    return row


def _remedy(path: Path, entry: Mapping[str, Any]) -> str:
    run = entry["run"]
    command = f"python -m workflow.scripts.largest --run {run} --dimension {path.stem.removeprefix(f'{run}_')}"
    return f"remove it, or measure it again with: {command}"


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
