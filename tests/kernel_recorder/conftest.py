"""A program written to a file, run under `kernel-tables record` from this process."""

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernel_tables.__main__ import main


@dataclass(frozen=True)
class Recorded:
    """How a recording ended: its exit status, what the program printed and what the command said."""

    status: int
    out: str
    err: str
    capture: Path


@pytest.fixture
def record(tmp_path, monkeypatch, capfd):
    """A function that records a program, given by its source, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(source="", *options, arguments=(), python=(), program=None):
        if program is None:
            (tmp_path / "train.py").write_text(source)
            program = [sys.executable, *python, "train.py", *arguments]
        capfd.readouterr()
        status = main(["record", "--profiler", "torch", *options, "--", *program])
        return Recorded(status, *capfd.readouterr(), tmp_path / "recording.sqlite")

    return run
