"""The attention sweep, from its tables: `python -m workflow.scripts.sweep --tables results/tables --output results`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pandas as pd

from profile_grid.figures.paper import write_figure
from profile_grid.files import write_text
from profile_grid.study.sweep_dimensions import ATTENTION_SWEEP, SWEEP_ROWS
from profile_grid.sweep.dictionary import check_sweep_table, dictionary
from profile_grid.sweep.document import document
from profile_grid.sweep.figure import SWEEP as FIGURE
from profile_grid.sweep.page import page
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables and provenance.json")
    parser.add_argument("--output", type=Path, required=True, help="folder of answers, figures and page")
    arguments = parser.parse_args()
    table, rows = (pd.read_parquet(arguments.tables / f"{name}.parquet") for name in (ATTENTION_SWEEP, SWEEP_ROWS))
    for name, found in ((ATTENTION_SWEEP, table), (SWEEP_ROWS, rows)):
        check_sweep_table(name, found)
    write_text(arguments.tables / "README.md", dictionary())
    provenance = json.loads((arguments.tables / "provenance.json").read_text())
    write_text(arguments.output / "answers" / f"{ATTENTION_SWEEP}.md", document(table, rows, provenance))
    files = write_figure(FIGURE, {"runs": rows, ATTENTION_SWEEP: table}, arguments.output / "figures")
    write_text(arguments.output / "report.html", page(table, rows, provenance, files[".png"]))


if __name__ == "__main__":
    run_command(main)
