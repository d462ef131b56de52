"""Builds the page: `python -m workflow.scripts.page --tables results/tables --figures results/figures ...`."""

import argparse
import json
from pathlib import Path

import pandas as pd

from profile_grid.files import write_text
from profile_grid.page import libraries, needed_tables, page
from profile_grid.stages.capture.timeline import empty_timeline
from profile_grid.study.catalogue import questions_asked
from profile_grid.tables.on_disk import SUMS, TablesOnDisk, declared_tables
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of the tables and provenance.json")
    parser.add_argument("--figures", type=Path, required=True, help="folder of the figures as PNG")
    parser.add_argument("--timeline", type=Path, help="timeline.parquet of one run, if a run has steps")
    parser.add_argument("--trace", help="path of the trace for Perfetto, relative to the page")
    parser.add_argument("--output", type=Path, required=True, help="report.html")
    arguments = parser.parse_args()
    libraries.begin_plots()
    on_disk = TablesOnDisk(arguments.tables, columns=SUMS, declared=declared_tables())
    tables = {name: on_disk[name] for name in needed_tables(on_disk["runs"])}
    provenance = json.loads((arguments.tables / "provenance.json").read_text())
    timeline = pd.read_parquet(arguments.timeline) if arguments.timeline else empty_timeline()
    figures = [name for question in questions_asked(tables["runs"].to_dict("records")) for name in question.figures]
    images = {name: (arguments.figures / f"{name}.png").read_bytes() for name in figures}
    write_text(arguments.output, page(tables, provenance, timeline, images, arguments.trace))


if __name__ == "__main__":
    run_command(main)
