"""The runs of the example as templates: their single times, and their tables as they were before they were merged."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import pandas as pd

from profile_grid.results.results import COMPLETE
from profile_grid.study.catalogue import TABLES_OF_A_RUN
from profile_grid.study.dimensions import LEADING

EXAMPLE = Path(__file__).parent.parent / "docs" / "example-h200" / "tables"
FACTORS = 7  # the nanoseconds of a run are multiplied by 1 to 7


class ExampleRuns:
    """The complete runs of the example. A table is written into `folder` once for all made-up runs that have it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The complete runs by name."""
        runs = pd.read_parquet(EXAMPLE / "runs.parquet").set_index("run")
        return runs[runs["capture_status"] == COMPLETE]

    @cached_property
    def seconds(self) -> dict[str, dict[str, list[float]]]:
        """Every timed step of each run by phase."""
        steps = pd.read_parquet(EXAMPLE / "steps.parquet")
        return {
            run: {phase: (times["ms"] / 1e3).tolist() for phase, times in rows.groupby("phase", sort=False)}
            for run, rows in steps.groupby("run", sort=False)
        }

    @cached_property
    def tables(self) -> dict[tuple[str, str], pd.DataFrame]:
        """The tables by name and run."""
        found = {}
        for name in TABLES_OF_A_RUN:
            merged = pd.read_parquet(EXAMPLE / f"{name}.parquet")
            of_run = dict(iter(merged.groupby("run", sort=False)))
            for run in self.runs.index:  # also those of which a table has no rows
                found[name, run] = of_run.get(run, merged[:0]).drop(columns=LEADING).reset_index(drop=True)
        return found

    def run_like(self, mode: str, number: int) -> str:
        """The run of the example that the made-up run of this number has its figures from."""
        names = self.runs.index[self.runs["mode"] == mode]
        return names[number % len(names)]

    def table_file(self, name: str, run: str, number: int, filled: bool) -> Path:
        """A Parquet file with the rows that the made-up run of this number has like `run`, or without any."""
        factor = number % FACTORS + 1 if filled else 0
        path = self.folder / f"{name}-{run}-{factor}.parquet"
        if not path.exists():
            table = self.tables[name, run] if filled else pd.DataFrame(columns=self.tables[name, run].columns)
            times = {column: table[column] * factor for column in table if column.endswith("_ns")}
            table.assign(**times).to_parquet(path, index=False)
        return path
