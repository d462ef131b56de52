"""The planted loops run, there is one for every rule, and of each capture its rule speaks, and it alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kernel_tables.planted.__main__ import FAULTS, expected, speaking
from tests.kernel_tables.planted.programs import LOOPS, Loop

CAPTURES = sorted((Path(__file__).parents[2] / "captures" / "planted").glob("*.sqlite.gz"))


def test_every_fault_has_its_loop():
    assert list(LOOPS) == list(FAULTS)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_loop_runs_to_its_end(fault):
    loop = LOOPS[fault]
    smaller = {"tokens": 8, "width": 16, "layers": 2, "heads": 2, "megabytes": 1} if isinstance(loop, Loop) else {}
    replace(loop, **smaller, device="cpu", warmup=1, measured=1).run()


def test_every_loop_was_captured():
    assert {capture.name.removesuffix(".sqlite.gz") for capture in CAPTURES} == set(FAULTS)


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.name)
def test_of_a_capture_its_rule_speaks_and_no_other(capture):
    assert speaking(capture) == expected(capture.name.removesuffix(".sqlite.gz"))
