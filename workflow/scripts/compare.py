"""Compares two folders of results: `python -m workflow.scripts compare --before DIR --after DIR --output FOLDER`.

With --varies DIMENSION instead of --before, runs are compared with those at its default. Writes all files of the
comparison, and prints its first two sentences. With --fail-on slower (or faster, or changed), the exit status is 1 if a
run has that verdict, after everything is written.
"""

from pathlib import Path
from typing import Literal

from profile_grid.comparing import document, outputs
from profile_grid.comparing.cells import FASTER, SLOWER
from profile_grid.comparing.results import Results, read_results, sides_of_study
from profile_grid.errors import OutsideError
from profile_grid.study.dimensions import BY_KEY

FAIL_ON = {"nothing": (), "slower": (SLOWER,), "faster": (FASTER,), "changed": (SLOWER, FASTER)}


class FailingVerdict(OutsideError):
    """A run has a verdict on which the caller wants to fail."""


def main(
    *,
    after: str,
    output: Path,
    before: str = "",
    varies: Literal["", *BY_KEY] = "",
    fail_on: Literal[*FAIL_ON] = "nothing",
) -> None:
    """Compares the results in the folder `after` with those of the same grid in `before`. With `varies`, the name of a
    dimension, compares the runs in `after` with those of them that have the dimension's default."""
    cells = outputs.write_comparison(*sides_of_comparison(before, after, varies), output)["cells"]
    print(f"{' '.join(document.summary(cells)[:2])} See {output / 'comparison.md'}")
    failing = cells[cells["verdict"].isin(FAIL_ON[fail_on])]
    if len(failing):
        runs = ", ".join(f"{row.run} (× {row.ratio:.3f})" for row in failing.itertuples())
        raise FailingVerdict(f"{len(failing)} of {len(cells)} runs are {fail_on}: {runs}")


def sides_of_comparison(before: str, after: str, varies: str) -> tuple[Results, Results]:
    """(before, after): the sides that the options name. Raises OutsideError if one is missing or has no results."""
    if not after or bool(before) == bool(varies):
        raise OutsideError(
            "name both folders of results: snakemake compare --config before=DIR after=DIR; or one study and the"
            " dimension that it is about: after=DIR varies=precision"
        )
    results = read_results(Path(after))
    if varies:
        return sides_of_study(results, BY_KEY[varies])
    return read_results(Path(before)), results
