"""Runs a job of the analysis and records what made its outputs: `python -m workflow.make RECIPE`.

RECIPE is the JSON of a `Making` (profile_grid/freshness/making.py). Code and inputs are digested before and after its
command runs: if they changed meanwhile, the job fails and the outputs get no record.
"""

import os
import runpy
import sys
from pathlib import Path

from profile_grid.errors import OutsideError
from profile_grid.freshness import imports, made
from profile_grid.freshness.digests import FileDigests
from profile_grid.freshness.making import Making
from workflow.command import run_command

ROOT = Path(__file__).parents[1]


def main(recipe: str) -> None:
    making, digest_of = Making.from_json(recipe), FileDigests()
    before = making_now(making, digest_of)
    imports.remember_sources()
    made.remove_records(making.outputs)
    for folder in making.folders:
        Path(folder, made.NAME).unlink(missing_ok=True)
    sys.argv = list(making.command)
    runpy.run_module(making.command[0], run_name="__main__", alter_sys=True)
    if making_now(making, digest_of) != before:
        raise OutsideError(
            f"the code or the inputs of {making.name} changed while it ran, so its outputs are stale: run again"
        )
    digests = {path: digest_of(path) for path in making.outputs}
    if missing := [path for path, digest in digests.items() if digest is None]:
        raise OutsideError(f"{making.command[0]} did not write {missing[0]}")
    made.write_records(digests, before)
    for folder in making.folders:
        made.write_folder_records(folder, {path: digest_of(path) for path in files_below(folder)}, before)


def making_now(making: Making, digest_of: FileDigests) -> made.Recipe:
    """The `Making` of the outputs, from the current files."""
    imports.forget_imports()
    return making.recipe(making.code(ROOT), making.packages(ROOT), digest_of)


def files_below(folder: str) -> list[str]:
    """The files in a folder and its subfolders, without records."""
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sorted(path for path in paths if os.path.basename(path) not in (made.NAME, made.LOCK))


if __name__ == "__main__":
    run_command(main)
