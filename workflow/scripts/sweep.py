"""The attention sweep: `python -m workflow.scripts.sweep --rows ROW ... --folder results/sweep --output results`."""

from __future__ import annotations

import argparse
from pathlib import Path

from profile_grid.figures.paper import on_paper, save
from profile_grid.files import replacing, write_table, write_text
from profile_grid.measuring.sweep import read_row
from profile_grid.study.stages import SWEEP
from profile_grid.sweep.document import document
from profile_grid.sweep.figure import SWEEP as FIGURE
from profile_grid.sweep.table import NAME, machines_table, sweep_table
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", required=True, help="the rows of the sweep, by name")
    parser.add_argument("--folder", type=Path, required=True, help="holds a folder for each row")
    parser.add_argument("--output", type=Path, required=True, help="folder of tables, answers and figures")
    arguments = parser.parse_args()
    rows = {name: read_row(arguments.folder / name / SWEEP.result) for name in arguments.rows}
    table, machines = sweep_table(rows), machines_table(rows)
    write_table(arguments.output / "tables" / f"{NAME}.csv", table)
    write_text(arguments.output / "answers" / f"{NAME}.md", document(table, machines))
    specification = on_paper(FIGURE, {"runs": machines, NAME: table})
    for suffix in (".svg", ".png"):
        with replacing(arguments.output / "figures" / f"{NAME}{suffix}") as beside:
            save(specification, beside, suffix)


if __name__ == "__main__":
    run_command(main)
