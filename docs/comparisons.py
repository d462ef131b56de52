"""The comparisons below docs/, made anew from the times and kernels of both their sides."""

from __future__ import annotations

from pathlib import Path

from profile_grid.comparing.results import read_results
from profile_grid.comparing.written import write_comparison

COMPARISONS = Path(__file__).parent / "example-h200" / "comparison"
SIDES = ("before", "after")  # folders beside what is made of them


def comparisons() -> list[Path]:
    """The folder of each comparison that is kept."""
    return sorted(path.parent for path in COMPARISONS.glob(f"*/{SIDES[0]}"))


def remake_comparison(kept: Path, folder: Path) -> None:
    """Writes into a folder what is made of the two sides of a comparison that is kept."""
    write_comparison(*(read_results(kept / side) for side in SIDES), folder)
