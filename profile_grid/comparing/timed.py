"""Results in which runs were timed and not captured: what a comparison needs of them, read from the timings alone."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from profile_grid.merging.merge import checkouts
from profile_grid.merging.provenance import provenance
from profile_grid.merging.run_overview import runs_table
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import Status, read_result
from profile_grid.stages.timing.tables import steps_table, times_by_phase
from profile_grid.study.dimensions import LEADING
from profile_grid.study.stages import TIMING

PLAN = "grid.json"
OF_KERNELS = ("step", "phase", "range", "kernel", "class", "launches", "total_ns")


def timed_tables(folder: Path) -> tuple[dict[str, pd.DataFrame], dict]:
    """The tables `runs`, `steps` and, without rows, `kernels`, and where they come from, of the results in a folder
    that holds grid.json and the timing of each of its runs. Raises BadResult where one is not there."""
    plan = json.loads((folder / PLAN).read_text())
    runs = [_timed(entry, folder / "runs" / entry["run"]) for entry in plan["runs"]]
    kernels = pd.DataFrame(columns=[*LEADING, *OF_KERNELS])
    tables = {"runs": runs_table(runs), "steps": steps_table(runs, times_by_phase), "kernels": kernels}
    return tables, provenance(tables["runs"], plan, checkouts(runs))


def _timed(entry: dict, folder: Path) -> MeasuredRun:
    result = read_result(folder / TIMING.result)
    return MeasuredRun(entry, {TIMING.name: result}, {TIMING.name: Status(result.status, result.reason, [])})
