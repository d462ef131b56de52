"""The committed counter of lines, and the limit of what a checkout takes."""

import subprocess

import pytest

from benchmarks import size

MOST_TRACKED_BYTES = 20_000_000
MODULE = b'''"""A module,

with two lines of text."""

import os


def f(x):
    """One line."""
    if x:
        return os
'''


def test_lines_statements_and_docstrings_are_counted_outside_of_tests():
    counted = {"a/b.py": MODULE, "workflow/Snakefile": b"rule all:\n", "a/page.js": b"1\n2\n", "a/page.html.j2": b"x"}
    others = {"tests/test_b.py": MODULE, "tests/helper.py": MODULE, "a/test_b.py": MODULE, "a/data.csv": b"1\n2\n"}
    found = size.size_of(counted | others)
    assert found == size.ProjectSize(
        lines=11 + 1 + 2 + 1, python_lines=11, statements=6, docstring_lines=4,
        tracked_bytes=4 * len(MODULE) + 10 + 4 + 1 + 4,
    )  # fmt: skip


def test_the_checkout_takes_at_most_20_mb_and_no_page_is_committed():
    try:
        files = size.tracked_files()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this copy is no checkout of git")
    assert sum(map(len, files.values())) <= MOST_TRACKED_BYTES
    assert [name for name in files if name.endswith(".html")] == []
