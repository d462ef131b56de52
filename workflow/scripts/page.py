"""Builds the page: `python -m workflow.scripts page --tables results/tables --figures results/figures ...`."""

import json
from pathlib import Path

import pandas as pd

from profile_grid.files import write_text
from profile_grid.page import libraries, needed_tables, page
from profile_grid.stages.capture.timeline import empty_timeline
from profile_grid.study.catalogue import questions_asked
from profile_grid.tables.on_disk import COLUMNS_FOR_SUMS, TablesOnDisk, declared_tables


def main(*, tables: Path, figures: Path, output: Path, timeline: Path | None = None, trace: str | None = None) -> None:
    """Writes the page to `output`. `timeline` is the table of one run; `trace` the path of its trace for Perfetto, from
    the page."""
    libraries.begin_plots()
    on_disk = TablesOnDisk(tables, columns=COLUMNS_FOR_SUMS, declared=declared_tables())
    needed = {name: on_disk[name] for name in needed_tables(on_disk["runs"])}
    provenance = json.loads((tables / "provenance.json").read_text())
    bars = pd.read_parquet(timeline) if timeline else empty_timeline()
    names = [name for question in questions_asked(needed["runs"].to_dict("records")) for name in question.figures]
    images = {name: (figures / f"{name}.png").read_bytes() for name in names}
    write_text(output, page(needed, provenance, bars, images, trace))
