"""How long the analysis of a large study takes, as whole processes: `python -m benchmarks.analysis [--runs 6000]`.

Makes up the results of so many runs (benchmarks/made_study.py), then merges them, makes the tables of the questions,
the figures and the page, as the rules do. The bound, measured in the same run, is to read every run's tables with Arrow
and to write them, below one another and without a dictionary, as Parquet and CSV. Prints a Markdown table with the
ratios of processor seconds to it, which other programs on the machine change little, peak memory, and the size of the
page. Needs 2 GB of disk and takes about five minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.made_grid import ROOT, SIZES, made_config
from benchmarks.whole_process import measured
from profile_grid.study.catalogue import questions_asked
from profile_grid.study.runs import grid_runs, planned_rows

TIME_LIMIT_S = 600
TIMELINE = ROOT / "docs" / "example-h200" / "page" / "timeline.parquet"
STUDY = (
    "import pathlib, sys, benchmarks.made_study as made; made.write_study(pathlib.Path(sys.argv[1]), int(sys.argv[2]))"
)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, choices=SIZES, default=6000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        subprocess.run([sys.executable, "-c", STUDY, str(folder / "study"), str(arguments.runs)], cwd=ROOT, check=True)
        print(f"{arguments.runs} runs, {os.cpu_count()} cores\n")
        print("| whole process | wall s | CPU s | peak MiB | CPU x bound |")
        print("| --- | ---: | ---: | ---: | ---: |", flush=True)
        (folder / "bound").mkdir()
        bound = reported("reading and writing with Arrow", bound_command(folder), None)
        for name, command in commands(folder, figures_asked(arguments.runs)).items():
            reported(name, command, bound)
        page = (folder / "report.html").stat().st_size
        print(f"\nThe page has {page / 1e6:.2f} MB.")


def reported(name: str, command: list[str], bound_s: float | None) -> float:
    """Runs a command, prints its line, and gives its processor seconds."""
    found = measured(command, TIME_LIMIT_S)
    if isinstance(found, str):
        sys.exit(f"{name}: {found}")
    ratio = found.cpu_s / (bound_s or found.cpu_s)
    print(f"| {name} | {found.wall_s:.1f} | {found.cpu_s:.1f} | {found.peak_mib:.0f} | {ratio:.2f} |", flush=True)
    return found.cpu_s


def bound_command(folder: Path) -> list[str]:
    """What has to be done whatever the tables are for."""
    return [sys.executable, "-c", BOUND, str(folder / "study" / "runs"), str(folder / "bound")]


def figures_asked(runs: int) -> list[str]:
    """The figures of the questions that the made-up grid answers."""
    config = made_config(runs)
    rows = planned_rows(config, grid_runs(config))
    return [name for question in questions_asked(rows) for name in question.figures]


def commands(folder: Path, drawn: list[str]) -> dict[str, list[str]]:
    """What is measured, by name: the commands of the rules, in their order."""
    study, tables, figures = folder / "study", folder / "tables", folder / "figures"
    script, plan = [sys.executable, "-m"], study / "grid.json"
    sources = (study / "sources.json").read_text()
    merge = ["--plan", plan, "--runs", study / "runs", "--output", tables, "--sources", sources]
    read = ["--tables", tables]
    page = [*read, "--figures", figures, "--timeline", TIMELINE, "--output", folder / "report.html"]
    steps = {
        "merge": ["merge", *merge],
        "summaries": ["summaries", *read],
        **{f"figure {name}": ["figures", *read, "--output", figures, "--figures", name] for name in drawn},
        "documents": ["answers", *read, "--output", folder / "answers"],
        "page": ["page", *page],
    }
    return {name: [*script, f"workflow.scripts.{step}", *map(str, rest)] for name, (step, *rest) in steps.items()}


if __name__ == "__main__":
    main()
