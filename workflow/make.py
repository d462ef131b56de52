"""Runs a script of the analysis and records what made its outputs: `python -m workflow.make RECIPE SCRIPT
ARGUMENTS...`.

RECIPE is the JSON of a `Making` (profile_grid/freshness/making.py). Code and inputs are digested before and after the
script runs: if they changed meanwhile, the job fails and the outputs get no record.
"""

import argparse
import os
import runpy
import sys
from pathlib import Path

from profile_grid.errors import OutsideError
from profile_grid.freshness import made
from profile_grid.freshness.digests import FileDigests
from profile_grid.freshness.imports import forget_imports, remember_sources
from profile_grid.freshness.making import Making
from workflow.command import run_command

ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipe", type=Making.from_json, help="what makes the outputs, as JSON")
    parser.add_argument("script", help="the module to run")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the arguments of the script")
    options = parser.parse_args()
    digest_of = FileDigests()
    before = making_now(options.recipe, digest_of)
    remember_sources()
    made.remove_records(options.recipe.outputs)
    for folder in options.recipe.folders:
        Path(folder, made.NAME).unlink(missing_ok=True)
    sys.argv = [options.script, *options.arguments]
    runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    if making_now(options.recipe, digest_of) != before:
        raise OutsideError(
            f"the code or the inputs of {options.recipe.name} changed while it ran, so its outputs are stale: run again"
        )
    digests = {path: digest_of(path) for path in options.recipe.outputs}
    if missing := [path for path, digest in digests.items() if digest is None]:
        raise OutsideError(f"{options.script} did not write {missing[0]}")
    made.write_records(digests, before)
    for folder in options.recipe.folders:
        made.write_folder_records(folder, {path: digest_of(path) for path in files_below(folder)}, before)


def making_now(making: Making, digest_of: FileDigests) -> made.Recipe:
    """The `Making` of the outputs, from the current files."""
    forget_imports()
    return making.recipe(making.code(ROOT), making.packages(ROOT), digest_of)


def files_below(folder: str) -> list[str]:
    """The files in a folder and its subfolders, without records."""
    paths = (os.path.join(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return sorted(path for path in paths if os.path.basename(path) not in (made.NAME, made.LOCK))


if __name__ == "__main__":
    run_command(main)
