"""The comparisons below docs/, made from the times and kernels of both their sides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from docs.kept_tables import KeptTables, write_kept
from profile_grid.comparing.results import Results
from profile_grid.comparing.written import write_comparison

COMPARISONS = Path(__file__).parent / "example-h200" / "comparison"
SIDES = ("before", "after")  # folders beside what is made of them
KEPT = (".md", ".svg")  # of what is made, and each table that has rows


def comparisons() -> list[Path]:
    """The folder of each comparison that is kept."""
    return sorted(path.parent for path in COMPARISONS.glob(f"*/{SIDES[0]}"))


def make_comparison(kept: Path, folder: Path) -> dict[str, pd.DataFrame]:
    """Writes into a folder all files that are made of the two sides of a comparison. Its tables by name."""
    return write_comparison(*(_side(kept / side) for side in SIDES), folder)


def remake_comparison(kept: Path) -> None:
    """Writes what is kept of a comparison."""
    with TemporaryDirectory() as scratch:
        for name, table in make_comparison(kept, Path(scratch)).items():
            write_kept(kept / f"{name}.parquet", table)
        for path in Path(scratch).iterdir():
            if path.suffix in KEPT:
                shutil.copyfile(path, kept / path.name)


def _side(folder: Path) -> Results:
    provenance = json.loads((folder / "tables" / "provenance.json").read_text())
    return Results(folder, KeptTables(folder / "tables"), provenance)
