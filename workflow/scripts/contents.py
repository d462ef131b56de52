"""Lists the files of the grid, and removes those of earlier grids: `python -m workflow.scripts.contents ...`."""

import argparse
import json
import sys
from pathlib import Path

from profile_grid.files import write_text
from workflow.command import run_command
from workflow.leftovers import remove_leftovers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=json.loads, required=True, help="files, and folders of files, as JSON")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    for line in remove_leftovers(set(arguments.files)):
        print(line, file=sys.stderr)
    write_text(arguments.output, "".join(f"{path}\n" for path in sorted(arguments.files)))


if __name__ == "__main__":
    run_command(main)
