"""How long the analysis of a large study takes, as whole processes: `python -m benchmarks.analysis [--runs 6000]`.

Makes up the results of N runs (benchmarks/made_study.py), then merges them, makes the tables of the questions, the
figures and the page, as the rules do. The bound, measured in the same run, is to read every run's tables with Arrow and
to write them, below one another and without a dictionary, as Parquet and CSV. Ratios are of processor seconds, which
other programs on the machine change little. Needs 2 GB of disk and takes about five minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from benchmarks.harness import PYTHON, ROOT, Costs, run
from benchmarks.made_grid import made_config
from profile_grid.study.catalogue import questions_asked
from profile_grid.study.runs import grid_runs, planned_rows

TIMELINE = ROOT / "docs" / "example-h200" / "page" / "timeline.parquet"
STUDY = """
import sys
from pathlib import Path
from benchmarks.made_study import write_study

write_study(Path(sys.argv[1]), int(sys.argv[2]))
"""
BOUND = """
import json, sys
from pathlib import Path
import pyarrow as pa
import pyarrow.csv, pyarrow.parquet as pq
from profile_grid.study.catalogue import TABLES_OF_A_RUN

runs, output = Path(sys.argv[1]), Path(sys.argv[2])
for name in TABLES_OF_A_RUN:
    tables = []
    for path in sorted(runs.glob(f"*/{name}.parquet")):
        with pq.ParquetFile(path) as file:
            table = file.read(use_threads=False)
        if table.num_rows:
            tables.append(table.add_column(0, "run", pa.array([path.parent.name] * table.num_rows)))
    if not tables:
        continue
    whole = pa.concat_tables(tables, promote_options="default")
    pq.write_table(whole, output / f"{name}.parquet")
    pyarrow.csv.write_csv(whole, output / f"{name}.csv")
"""


def main(*, runs: Literal[60, 600, 6000] = 6000) -> str | None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([sys.executable, "-c", STUDY, str(folder / "study"), str(runs)], cwd=ROOT, check=True)
        (folder / "bound").mkdir()
        costs = Costs(f"{runs} runs", "cpu_s")
        for name, command in commands(folder, figures_asked(runs)).items():
            if isinstance(problem := costs.measure(name, command), str):
                return f"{name}: {problem}"
        print(f"\nThe page has {(folder / 'report.html').stat().st_size / 1e6:.2f} MB.")


def figures_asked(runs: int) -> list[str]:
    """The figures of the questions that the made-up grid answers."""
    config = made_config(runs)
    rows = planned_rows(config, grid_runs(config))
    return [name for question in questions_asked(rows) for name in question.figures]


def commands(folder: Path, drawn: list[str]) -> dict[str, list[str]]:
    """What is measured, by name: the bound, then the commands of the rules, in their order."""
    study, tables, figures = folder / "study", folder / "tables", folder / "figures"
    sources = (study / "sources.json").read_text()
    read = ["--tables", tables]
    steps = {
        "merge": ["merge", "--plan", study / "grid.json", "--runs", study / "runs", "--output", tables,
                  "--sources", sources],
        "summaries": ["summaries", *read],
        **{f"figure {name}": ["figures", *read, "--output", figures, "--figures", name] for name in drawn},
        "documents": ["answers", *read, "--output", folder / "answers"],
        "page": ["page", *read, "--figures", figures, "--timeline", TIMELINE, "--output", folder / "report.html"],
    }  # fmt: skip
    bound = [sys.executable, "-c", BOUND, study / "runs", folder / "bound"]
    ours = {name: [*PYTHON, f"workflow.scripts.{script}", *rest] for name, (script, *rest) in steps.items()}
    return {"reading and writing with Arrow": bound} | ours


if __name__ == "__main__":
    run(main)
