"""How scripts end where the disk, the folder, or the terminal they were started from is what fails."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.workflow.conftest import ROOT

SPECIFICATION = json.dumps(
    {
        "program": {"run": "r", "dimensions": {"model": "one"}, "device": "cpu"},
        "environment": [],
    }
    | {"backend": "torch"}
)
MEASURE = (
    f"{sys.executable} -m workflow.scripts measure --stage %s --specification '{SPECIFICATION}' --sources 0"
    " --output results/runs/r/%s.json --log run.log --time-limit-s 20"
)
SCRIPT = f"{MEASURE}; echo status $? >&2; find results -type f >&2"


def test_a_full_disk_is_one_line_and_leaves_no_half_result(fake_project, in_mounts):
    fill = (
        "mkdir results; mount -t tmpfs -o size=64k none results; mkdir -p results/runs/r; cat /dev/zero >results/fill"
    )
    done = in_mounts(f"{fill} 2>/dev/null; {SCRIPT % ('timing', 'timing')}", fake_project)
    said = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert said == [
        "cannot write results/runs/r/timing.json: No space left on device; free some space, then run snakemake again",
        "status 1",
        "results/fill",
    ]


def test_a_disk_that_fills_up_during_a_capture_is_said_too(fake_project, in_mounts):
    fill = (
        "mkdir results; mount -t tmpfs -o size=64k none results; mkdir -p results/runs/r; cat /dev/zero >results/fill"
    )
    done = in_mounts(f"{fill} 2>/dev/null; {SCRIPT % ('capture', 'capture')}", fake_project)
    assert "No space left on device" in done.stderr
    assert done.stderr.splitlines()[-2:] == ["status 1", "results/fill"]


WRITERS = {
    "a CSV": "table.to_csv(beside)",
    "a Parquet": "table.to_parquet(beside)",
    "a figure": "beside.write_bytes(drawn(chart, '.svg'))",
    "a JSON": "beside.write_text(json.dumps(list(range(100_000))))",
}
WRITE = """
import json
from pathlib import Path
import numpy, pandas
from profile_grid.figures.paper import drawn
from profile_grid.files import replacing
from workflow.command import run_command
table = pandas.DataFrame(numpy.random.default_rng(0).random((20_000, 4)), columns=list("abcd"))
x = {{"field": "a", "type": "quantitative"}}
chart = {{"data": {{"values": table.to_dict("records")}}, "mark": "tick", "encoding": {{"x": x}}}}
def main():
    with replacing(Path("results/tables/made")) as beside:
        {writer}
run_command(main)
"""


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_disk_that_fills_up_while_the_analysis_writes_is_one_line_that_names_the_file(tmp_path, in_mounts, writer):
    (tmp_path / "write.py").write_text(WRITE.format(writer=writer))
    (tmp_path / "results").mkdir()
    mount = "mount -t tmpfs -o size=32k none results"
    done = in_mounts(f"{mount}; PYTHONPATH={ROOT} {sys.executable} write.py; find results -type f", tmp_path)
    assert done.stderr.splitlines() == [
        "cannot write results/tables/made: No space left on device; free some space, then run snakemake again"
    ]
    assert done.stdout == ""


def test_snakemake_works_where_the_folder_for_temporary_files_is_full(fake_project, in_mounts):
    mount = "mkdir tmp; mount -t tmpfs -o size=32k none tmp; cat /dev/zero >tmp/fill 2>/dev/null"
    command = f"TMPDIR=$PWD/tmp {sys.executable} -m snakemake --cores 1 results/grid.json"
    done = in_mounts(f"{mount}; {command}", fake_project)
    assert done.returncode == 0, done.stderr


def test_a_home_that_cannot_be_written_is_not_needed(fake_project, in_mounts):
    mount = "mkdir home; mount -t tmpfs -o ro none home; export HOME=$PWD/home; unset XDG_CACHE_HOME"
    done = in_mounts(f"{mount}; {sys.executable} -m snakemake --cores 1 results/grid.json", fake_project)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("ending", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("stage", ["timing", "capture"])
def test_a_measurement_that_is_asked_to_end_leaves_no_folder_behind(fake_project, stage, ending):
    (fake_project / "program").write_text("hangs")
    (fake_project / "tmp").mkdir()
    (fake_project / "results/runs/r").mkdir(parents=True)
    measurement = subprocess.Popen(
        ["sh", "-c", f"exec {MEASURE % (stage, stage)}"], cwd=fake_project, stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(fake_project), "TMPDIR": str(fake_project / "tmp")},
    )  # fmt: skip
    deadline = time.monotonic() + 20
    while not (fake_project / "pid").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    measurement.send_signal(ending)
    measurement.wait()
    assert list((fake_project / "tmp").iterdir()) == []
    assert list((fake_project / "results/runs/r").iterdir()) == []


def test_a_folder_that_is_read_only_is_one_line(fake_project, in_mounts):
    mount = "mkdir -p results/runs/r; mount --bind results results; mount -o remount,ro,bind results"
    done = in_mounts(f"{mount}; {SCRIPT % ('timing', 'timing')}", fake_project)
    said = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert said[0].startswith("cannot write results/runs/r")
    assert said[0].endswith("Read-only file system; make the folder writable, or run in a copy of the project,"
                            " then run snakemake again")  # fmt: skip
    assert said[1:] == ["status 1"]
