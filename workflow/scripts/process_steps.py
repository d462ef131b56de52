"""Gathers the times of the further processes: `python -m workflow.scripts process_steps --plan FILE --folder FOLDER
--processes N`.

Writes FOLDER/steps.csv and steps.parquet: run and its dimensions, process (from 2; the first is that of the merged
table of steps), phase, step (from 0), ms.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from profile_grid.files import write_table
from profile_grid.results.results import COMPLETE, read_result
from profile_grid.stages.timing.tables import times_by_phase
from profile_grid.study import dimensions, stages

COLUMNS = [*dimensions.LEADING, "process", "phase", "step", "ms"]


def main(*, plan: Path, folder: Path, processes: int) -> None:
    entries = json.loads(plan.read_text())["runs"]
    timings = ((number, entry) for number in range(2, processes + 1) for entry in entries)
    rows = [row for number, entry in timings for row in step_rows(folder, number, entry)]
    write_table(folder / "steps.csv", pd.DataFrame(rows, columns=COLUMNS))


def step_rows(folder: Path, number: int, entry: dict) -> Iterator[dict]:
    """The rows of one timing: by process `number` of the run `entry` of the plan. None unless the timing is complete.
    Raises BadResult."""
    result = read_result(folder / str(number) / entry["run"] / stages.TIMING.result_file)
    if result.status != COMPLETE:
        return
    leading = {key: entry[key] for key in dimensions.LEADING}
    for phase, times_s in times_by_phase(result.program).items():
        for step, time_s in enumerate(times_s):
            yield leading | {"process": number, "phase": phase, "step": step, "ms": time_s * 1e3}
