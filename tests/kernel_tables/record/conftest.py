"""A program written to a file, run under `kernel-tables record` from this process."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables.cli import main


@dataclass(frozen=True)
class Recorded:
    """How a recording ended: its exit status, what the program printed and what the command said."""

    status: int
    out: str
    err: str
    folder: Path

    def instances(self, capture="recording.sqlite") -> dict[str, int]:
        """How often each path of ranges opened."""
        with kernel_tables.read(self.folder / capture) as profile:
            return profile.ranges(tree=True).set_index("range")["instances"].to_dict()


@pytest.fixture
def record(tmp_path, monkeypatch, capfd):
    """A function that records a program, given by its source or by its words, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(__file__).with_name("programs.py"), tmp_path)

    def run(source="", *options, arguments=(), python=(), program=None, profiler="torch"):
        if program is None:
            (tmp_path / "train.py").write_text(source)
            program = [sys.executable, *python, "train.py", *arguments]
        capfd.readouterr()
        status = main(["record", "--profiler", profiler, *options, "--", *program])
        return Recorded(status, *capfd.readouterr(), tmp_path)

    return run
