"""Compares two folders of results: `python -m workflow.scripts.compare --before DIR --after DIR --output FOLDER`.

Writes the document and its tables, and prints the verdicts. With --fail-on slower (or faster, or changed), the exit
status is 1 if a cell has that verdict, after everything is written.
"""

import argparse
from pathlib import Path

from profile_grid.comparing.cells import FASTER, SLOWER
from profile_grid.comparing.document import summary
from profile_grid.comparing.results import Results, read_results, sides_of_study
from profile_grid.comparing.written import write_comparison
from profile_grid.errors import OutsideError
from profile_grid.study.dimensions import BY_KEY
from workflow.command import run_command

FAIL_ON = {"nothing": (), "slower": (SLOWER,), "faster": (FASTER,), "changed": (SLOWER, FASTER)}


class Changed(OutsideError):
    """A cell has a verdict on which the caller wants to fail."""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", default="", help="folder of results before the change")
    parser.add_argument("--after", required=True, help="folder of results of the same grid after the change")
    parser.add_argument(
        "--varies",
        default="",
        choices=["", *BY_KEY],
        help="instead of --before: compare runs of --after with those at the default of this dimension",
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--fail-on", choices=list(FAIL_ON), default="nothing")
    options = parser.parse_args(arguments)
    cells = write_comparison(*sides(options), options.output)["cells"]
    print(f"{' '.join(summary(cells)[:2])} See {options.output / 'comparison.md'}")
    failing = cells[cells["verdict"].isin(FAIL_ON[options.fail_on])]
    if len(failing):
        runs = ", ".join(f"{row.run} (× {row.ratio:.3f})" for row in failing.itertuples())
        raise Changed(f"{len(failing)} cells are {options.fail_on}: {runs}")


def sides(options: argparse.Namespace) -> tuple[Results, Results]:
    """The two sides in the options. Raises OutsideError if they are missing or no results."""
    if not options.after or bool(options.before) == bool(options.varies):
        raise OutsideError(
            "name both folders of results: snakemake compare --config before=DIR after=DIR; or one study and the"
            " dimension that it is about: after=DIR varies=precision"
        )
    after = read_results(Path(options.after))
    if options.varies:
        return sides_of_study(after, BY_KEY[options.varies])
    return read_results(Path(options.before)), after


if __name__ == "__main__":
    run_command(main)
