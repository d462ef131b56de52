"""Merges the results of all runs: `python -m workflow.scripts merge --plan grid.json --runs results/runs ...`."""

import json
import sys
from pathlib import Path

from profile_grid.files import write_json, write_table
from profile_grid.host.gpu_check import visible_gpus
from profile_grid.merging import cost, merge
from profile_grid.results.load_runs import read_runs


def main(*, plan: Path, runs: Path, output: Path, sources: dict, processes: int) -> None:
    """Merges the runs of `plan`, the file grid.json, each timed by `processes` processes. `sources` has the digest of
    the code of each stage."""
    grid_plan = json.loads(plan.read_text())
    measured_runs = read_runs(grid_plan["runs"], runs, sources, processes)
    tables = merge.merged_tables(measured_runs, runs)
    for name, table in tables.items():
        write_table(output / f"{name}.csv", table)
    write_json(output / "provenance.json", merge.provenance(tables["runs"], grid_plan, merge.checkouts(measured_runs)))
    print(cost.cost_in_words(tables["cost"], len(visible_gpus())), file=sys.stderr)
