"""The page of each study below docs/example-h200, made from its tables by `python -m docs.study_pages FOLDER`.

The pages are not kept in the repository: one takes 2 to 5 MB, since it has all tables and figures in itself.
"""

from __future__ import annotations

import argparse
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from docs.examples import STUDIES, Example
from profile_grid.documents.summaries import summary_tables
from profile_grid.figures.paper import on_paper, save
from profile_grid.figures.registry import all_figures
from profile_grid.files import write_text
from profile_grid.merging.timeline import empty_timeline
from profile_grid.page import needed_tables, page
from profile_grid.study.catalogue import questions_asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pages are written, one HTML file per study")
    folder = parser.parse_args().folder
    for example in STUDIES:
        path = folder / f"{example.folder.name}.html"
        write_text(path, page_of_study(example))
        print(path)


def page_of_study(example: Example) -> str:
    """The page of a study with all that its tables tell, as its grid would have made it. The timeline of one step is
    not among them, since no capture is kept."""
    merged = example.merged()
    tables = ChainMap(summary_tables(merged), merged)
    needed = {name: tables[name] for name in needed_tables()}
    return page(needed, example.provenance(), empty_timeline(), images(tables), trace_file=None)


def images(tables: Mapping[str, pd.DataFrame]) -> dict[str, bytes]:
    """The PNG files of all figures of the questions that the grid asks, by name."""
    asked = questions_asked(tables["runs"].to_dict("records"))
    with TemporaryDirectory() as scratch:
        return {name: _drawn(name, tables, Path(scratch)) for one in asked for name in one.figures}


def _drawn(name: str, tables: Mapping[str, pd.DataFrame], scratch: Path) -> bytes:
    path = scratch / f"{name}.png"
    save(on_paper(all_figures()[name], tables), path, ".png")
    return path.read_bytes()


if __name__ == "__main__":
    main()
