"""What made the outputs of a job is noted after it, and only if nothing changed while it ran."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from profile_grid.freshness.digests import FileDigests
from profile_grid.freshness.jobs import AnalysisJob
from profile_grid.freshness.records import RECORDS_FILE, Records, read_records
from tests.workflow.conftest import ROOT
from workflow.make import current_recipe

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

    def run(before="", after="", outputs=("out/made",), folders=()):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        (tmp_path / "scripts/copy_input.py").write_text(SCRIPT.format(before=before, after=after))
        command = ("copy_input", "out/made")
        analysis_job = AnalysisJob(
            "copy", ("workflow/scripts/plan.py",), tuple(outputs), ("input",), command, folders=tuple(folders)
        )
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


NESTED = 'Path("out/in/deep").mkdir(parents=True, exist_ok=True); Path("out/in/deep/further").write_text("")'


@pytest.fixture
def folder_job(job):
    """Fills the folder `out` with two files, and says why it is stale."""
    assert job(after=NESTED, outputs=(), folders=("out",)).returncode == 0
    command = ("copy_input", "out/made")
    analysis_job = AnalysisJob("copy", ("workflow/scripts/plan.py",), (), ("input",), command, folders=("out",))

    def reason():
        digest_of = FileDigests()
        return analysis_job.stale_reason(current_recipe(analysis_job, digest_of), digest_of, Records())

    return reason


def test_every_file_of_a_folder_has_a_record_also_in_folders_below_it(folder_job):
    assert set(json.loads(Path("out", RECORDS_FILE).read_text())) == {"made", "in/deep/further"}
    assert folder_job() is None


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda: Path("out/in/deep/further").unlink(), "a file was deleted: out/in/deep/further"),
        (lambda: shutil.rmtree("out/in"), "a file was deleted: out/in/deep/further"),
        (lambda: Path("out/in/deep/further").write_text("-"), "a file is not the one that was made: out/in/deep/fur"),
        (lambda: shutil.rmtree("out"), "nothing says what made it: out"),
    ],
)
def test_a_file_that_is_deleted_or_changed_below_a_folder_makes_the_folder_stale(folder_job, change, reason):
    change()
    assert folder_job().startswith(reason)


def test_a_folder_that_is_filled_again_keeps_no_record_of_files_that_are_gone(job, folder_job):
    shutil.rmtree("out/in")
    assert job(outputs=(), folders=("out",)).returncode == 0
    assert set(json.loads(Path("out", RECORDS_FILE).read_text())) == {"made"}
    assert folder_job() is None
