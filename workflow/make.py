"""Runs a script of the analysis and notes what made its outputs: `python -m workflow.make RECIPE SCRIPT ARGUMENTS...`.

RECIPE is the JSON of a `Making` (profile_grid/freshness/making.py). What the outputs are made from is digested before
the script runs and again after it: if code or inputs changed meanwhile, the job fails and the outputs get no record.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from profile_grid.errors import OutsideError
from profile_grid.freshness.digests import FileDigests
from profile_grid.freshness.imports import forget_imports, remember_sources
from profile_grid.freshness.made import LOCK, NAME, Recipe, remove_records, write_records
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
    remove_records(options.recipe.outputs)
    sys.argv = [options.script, *options.arguments]
    runpy.run_module(options.script, run_name="__main__", alter_sys=True)
    if making_now(options.recipe, digest_of) != before:
        raise OutsideError(
            f"the code or the inputs of {options.recipe.name} changed while it ran, so its outputs are stale: run again"
        )
    digests = {path: digest_of(path) for path in made_files(options.recipe)}
    if missing := [path for path, digest in digests.items() if digest is None]:
        raise OutsideError(f"{options.script} did not write {missing[0]}")
    write_records(digests, before)


def making_now(making: Making, digest_of: FileDigests) -> Recipe:
    """What makes the outputs, by the files as they are now."""
    forget_imports()
    return making.recipe(making.code(ROOT), digest_of)


def made_files(making: Making) -> list[str]:
    """The files that a job has written, those in its folders included."""
    return [
        *making.outputs,
        *(
            f"{folder}/{name}"
            for folder in making.folders
            for name in sorted(os.listdir(folder))
            if name not in (NAME, LOCK)
        ),
    ]


def files_in(folder: str) -> list[str]:
    """The files in a folder, without those in folders below it, and without records."""
    return sorted(entry.name for entry in os.scandir(folder) if entry.is_file() and entry.name not in (NAME, LOCK))


if __name__ == "__main__":
    run_command(main)
