"""Plants each mutant of mutants.toml in a copy of the checkout, and runs the test that has to fail then.

`python -m tests.mutants [TEXT ...]`: all of them, or those with one of the texts in the name of their file or test.
Ends with status 1 where a mutant survives, or where a test fails without any.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy  # noqa: F401 - what every fork would import again
import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pytest
import scipy.stats  # noqa: F401
import torch  # noqa: F401

from tests.mutants.catalogue import Mutant, read_mutants

ROOT = Path(__file__).parents[2]
NOT_COPIED = shutil.ignore_patterns(".git", ".venv", ".snakemake", "__pycache__", ".*_cache")
PASSED, FAILED = 0, 1  # how pytest ends; anything else means that it could not run the test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="part of the name of a file or test; all without one")
    texts = parser.parse_args().texts
    mutants = [mutant for mutant in read_mutants() if not texts or is_named(mutant, texts)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(ROOT, Path(folder, "checkout"), symlinks=True, ignore=NOT_COPIED))
        tests = list(dict.fromkeys(mutant.killed_by for mutant in mutants))
        if (status := run_tests(copy, *tests, quiet=False)) != PASSED:
            sys.exit(f"the tests do not pass without a mutant (pytest ended with status {status})")
        survivors = [mutant for number, mutant in enumerate(mutants, 1) if survives(mutant, copy, number)]
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} mutants killed")
    sys.exit(1 if survivors else 0)


def is_named(mutant: Mutant, texts: list[str]) -> bool:
    """Whether one of the texts is part of the name of the mutant's file or test."""
    return any(text in name for text in texts for name in (mutant.file, mutant.killed_by))


def survives(mutant: Mutant, copy: Path, number: int) -> bool:
    """Whether the test passes with the mutant; prints a line about it."""
    started = time.monotonic()
    with planted(mutant, copy, number):
        status = run_tests(copy, mutant.killed_by)
    if status not in (PASSED, FAILED):
        sys.exit(f"{mutant.killed_by} cannot be run (pytest ended with status {status})")
    verdict = "survived" if status == PASSED else "killed"
    print(f"[{number}] {verdict} after {time.monotonic() - started:.1f} s: {mutant.file}: {mutant.breaks}", flush=True)
    return status == PASSED


@contextmanager
def planted(mutant: Mutant, copy: Path, number: int) -> Iterator[None]:
    """The copy has the mutant for the time of a with block."""
    path = copy / mutant.file
    text, old_time = path.read_text("utf-8"), path.stat().st_mtime
    if text.count(mutant.old) != 1:
        sys.exit(f"{mutant.file} has {text.count(mutant.old)} times the text {mutant.old!r}, not once")
    path.write_text(text.replace(mutant.old, mutant.new), "utf-8")
    os.utime(path, (old_time + number,) * 2)  # Python knows its compiled file by whole seconds, and by its size
    try:
        yield
    finally:
        path.write_text(text, "utf-8")
        os.utime(path, (old_time,) * 2)


def run_tests(copy: Path, *tests: str, quiet: bool = True) -> int:
    """How pytest ends with these tests of the copy, in a fork of this process, which has imported nothing of them."""
    sys.stdout.flush()
    if (process := os.fork()) == 0:
        status = 70
        try:
            if quiet:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, 1)
                os.dup2(nowhere, 2)
            use_modules_of(copy)
            status = pytest.main(["-n0", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", *tests])
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def use_modules_of(copy: Path) -> None:
    """From now on this process imports the project, and its tests, from the copy."""
    os.chdir(copy)
    sys.path[:] = [str(copy), *(folder for folder in sys.path if Path(folder).resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]


if __name__ == "__main__":
    main()
