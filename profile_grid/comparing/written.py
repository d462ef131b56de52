"""All files of a comparison: its tables, its figure, its document and its page."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from profile_grid.comparing.document import document
from profile_grid.comparing.figure import FIGURE
from profile_grid.comparing.page import page
from profile_grid.comparing.results import Results
from profile_grid.comparing.tables import comparison
from profile_grid.figures.paper import write_figure
from profile_grid.files import write_table, write_text


def write_comparison(before: Results, after: Results, folder: Path) -> dict[str, pd.DataFrame]:
    """Writes into a folder the tables, ratios.svg and .png, comparison.md and .html. The tables by name."""
    tables = comparison(before, after)
    for name, table in tables.items():
        write_table(folder / f"{name}.csv", table)
    runs = after.tables["runs"]
    files = write_figure(FIGURE, {"runs": runs, "cells": tables["cells"]}, folder)
    write_text(folder / "comparison.md", document(tables))
    write_text(folder / "comparison.html", page(tables, runs, files[".png"]))
    return tables
