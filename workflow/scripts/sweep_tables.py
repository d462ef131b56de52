"""The tables of the attention sweep: `python -m workflow.scripts.sweep_tables --plan results/grid.json ...`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from profile_grid.files import write_json, write_table
from profile_grid.study.sweep_dimensions import ATTENTION_SWEEP, SWEEP_ROWS
from profile_grid.sweep.rows import read_rows, rows_table, sweep_provenance
from profile_grid.sweep.table import sweep_table
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plan", type=Path, required=True, help="grid.json: the rows and their specifications")
    parser.add_argument("--folder", type=Path, required=True, help="holds a folder for each row")
    parser.add_argument("--sources", required=True, help="digest of what measures a row")
    parser.add_argument("--output", type=Path, required=True, help="folder of the tables and provenance.json")
    arguments = parser.parse_args()
    plan = json.loads(arguments.plan.read_text())
    rows = read_rows(plan["rows"], arguments.folder, arguments.sources)
    for name, table in {ATTENTION_SWEEP: sweep_table(rows), SWEEP_ROWS: rows_table(rows)}.items():
        write_table(arguments.output / f"{name}.csv", table)
    write_json(arguments.output / "provenance.json", sweep_provenance(rows, plan))


if __name__ == "__main__":
    run_command(main)
