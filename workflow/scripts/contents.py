"""Lists the files of the grid, and removes those of earlier grids: `python -m workflow.scripts contents ...`."""

import sys
from pathlib import Path

from profile_grid.files import write_text
from workflow.leftovers import remove_leftovers


def main(*, files: list, output: Path) -> None:
    for line in remove_leftovers(set(files)):
        print(line, file=sys.stderr)
    write_text(output, "".join(f"{path}\n" for path in sorted(files)))
