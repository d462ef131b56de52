"""What made the outputs of a job is noted after it, and only if nothing changed while it ran."""

import os
import subprocess
import sys

import pytest

from profile_grid.freshness.jobs import AnalysisJob
from profile_grid.freshness.records import read_records
from tests.workflow.conftest import ROOT

SCRIPT = """
import sys
from pathlib import Path
from pathlib import Path

{before}
Path(sys.argv[1]).write_text(Path("input").read_text())
{after}
"""


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Runs a script under workflow.make, in a folder with one input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input").write_text("one")

    def run(before="", after="", outputs=("out/made",)):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        (tmp_path / "scripts/copy_input.py").write_text(SCRIPT.format(before=before, after=after))
        command = ("copy_input", "out/made")
        analysis_job = AnalysisJob("copy", ("workflow/scripts/plan.py",), tuple(outputs), ("input",), command)
        (tmp_path / "out").mkdir(exist_ok=True)
        command = [sys.executable, "-m", "workflow.make", analysis_job.to_json()]
        path = os.pathsep.join((str(ROOT), str(tmp_path / "scripts")))
        return subprocess.run(
            command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}, check=False
        )

    return run


def test_the_record_of_an_output_is_written_after_it(job):
    assert job().returncode == 0
    (record,) = read_records("out").values()
    assert record.keys() == {"code", "settings", "packages", "inputs", "sha256"}


def test_a_job_whose_input_changes_while_it_runs_fails_and_leaves_no_record(job):
    assert job().returncode == 0
    run = job(after='Path("input").write_text("two")')
    assert run.returncode == 1
    assert run.stderr.strip().endswith("changed while it ran, so its outputs are stale: run again")
    assert read_records("out") == {}


def test_a_job_that_fails_or_is_killed_leaves_no_record_of_what_it_made_before(job):
    assert job().returncode == 0
    assert job(before="raise SystemExit('no')").returncode == 1
    assert read_records("out") == {}
    assert job().returncode == 0
    assert job(before="import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == -9
    assert read_records("out") == {}


def test_an_output_that_is_not_written_is_named(job):
    run = job(outputs=("out/made", "out/another"))
    assert "copy_input did not write out/another" in run.stderr
    assert run.returncode == 1
