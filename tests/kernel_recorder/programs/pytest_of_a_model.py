"""A test file of somebody's, run by pytest."""

import runpy
from pathlib import Path

import pytest


def test_that_trains(capsys):
    runpy.run_path(str(Path(__file__).with_name("convolutional.py")))
    assert capsys.readouterr().out.startswith("left ")


def test_that_fails():
    with pytest.raises(ZeroDivisionError):
        print(1 / 0)
