"""Measures the analysis of a large study, as processes: `python -m benchmarks.analysis [--runs 6000]`.

Writes generated results of N runs (benchmarks/made_study.py), then runs the commands of the rules: merge, tables of
questions, figures, page. The bound, measured in the same run, only reads all tables of the runs with Arrow and writes
them as Parquet and CSV. Ratios are of CPU seconds, which other programs hardly affect. Needs 2 GB of disk and takes
about five minutes.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Literal

from benchmarks.harness import PYTHON, ROOT, Costs, made_config, run
from profile_grid.study.catalogue import questions_asked
from profile_grid.study.runs import grid_runs, planned_rows

TIMELINE = ROOT / "docs" / "example-h200" / "page" / "timeline.parquet"
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
    if tables:
        merged = pa.concat_tables(tables, promote_options="default")
        pq.write_table(merged, output / f"{name}.parquet")
        pyarrow.csv.write_csv(merged, output / f"{name}.csv")
"""


def main(*, runs: Literal[60, 600, 6000] = 6000) -> str | None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([*PYTHON, "benchmarks.made_study", folder / "study", str(runs)], cwd=ROOT, check=True)
        (folder / "bound").mkdir()
        costs = Costs(f"{runs} runs", "cpu_s")
        config = made_config(runs)
        questions = questions_asked(planned_rows(config, grid_runs(config)))
        for name, command in commands(folder, [name for question in questions for name in question.figures]).items():
            if isinstance(problem := costs.measure(name, command), str):
                return f"{name}: {problem}"
        print(f"\nThe page has {(folder / 'report.html').stat().st_size / 1e6:.2f} MB.")


def commands(folder: Path, figure_names: list[str]) -> dict[str, list[str]]:
    """The measured commands by name: the bound, then the commands of the rules, in their order."""
    study, tables, figures = folder / "study", folder / "tables", folder / "figures"
    sources = (study / "sources.json").read_text()
    read = ["--tables", tables]
    scripts = {
        "merge": ["merge", "--plan", study / "grid.json", "--runs", study / "runs", "--output", tables,
                  "--sources", sources],
        "summaries": ["summaries", *read],
        **{f"figure {name}": ["figures", *read, "--output", figures, "--figures", name] for name in figure_names},
        "documents": ["answers", *read, "--output", folder / "answers"],
        "page": ["page", *read, "--figures", figures, "--timeline", TIMELINE, "--output", folder / "report.html"],
    }  # fmt: skip
    bound = [sys.executable, "-c", BOUND, study / "runs", folder / "bound"]
    ours = {name: [*PYTHON, f"workflow.scripts.{script}", *options] for name, (script, *options) in scripts.items()}
    return {"reading and writing with Arrow": bound} | ours


if __name__ == "__main__":
    run(main)
