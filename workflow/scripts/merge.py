"""Merges the results of all runs: `python -m workflow.scripts.merge --plan grid.json --runs results/runs ...`."""

import argparse
import json
import sys
from pathlib import Path

from profile_grid.files import write_json, write_table
from profile_grid.host.gpu_check import visible_gpus
from profile_grid.merging import merge
from profile_grid.merging.cost import cost_in_words
from profile_grid.merging.merge import provenance
from profile_grid.results.load_runs import read_runs
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="grid.json: the runs and their specifications")
    parser.add_argument("--runs", type=Path, required=True, help="folder with one folder per run")
    parser.add_argument("--output", type=Path, required=True, help="folder of the merged tables and provenance.json")
    parser.add_argument("--sources", type=json.loads, required=True, help="digests of what measures each stage")
    arguments = parser.parse_args()
    plan = json.loads(arguments.plan.read_text())
    runs = read_runs(plan["runs"], arguments.runs, arguments.sources)
    tables = merge.merged_tables(runs, arguments.runs)
    for name, table in tables.items():
        write_table(arguments.output / f"{name}.csv", table)
    write_json(arguments.output / "provenance.json", provenance(tables["runs"], plan, merge.checkouts(runs)))
    print(cost_in_words(tables["cost"], len(visible_gpus())), file=sys.stderr)


if __name__ == "__main__":
    run_command(main)
