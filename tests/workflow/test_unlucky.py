"""Kills, full and read-only disks, other users, two Snakemakes and a clock that goes back: nothing wrong counts as
made, and the next run completes it.

KILLS=50 kills as many runs at random moments; by default a few, always at the same.
"""

import base64
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import pytest

from profile_grid.freshness.digests import sha256_of_file
from profile_grid.freshness.records import read_records
from tests.workflow.small_workflow import OUTPUTS, SmallWorkflow, with_readers

KILLS = int(os.environ.get("KILLS", "3"))
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "2"]


@pytest.fixture
def small(tmp_path):
    return SmallWorkflow(tmp_path / "s")


def started(small, *arguments):
    """A Snakemake with processes of its own group."""
    return subprocess.Popen(
        [*SNAKEMAKE, *arguments], cwd=small.folder, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def require_true_records(small, *earlier):
    """Every file with a record is the file that was made, and says what a clean build would, or one of the `earlier`
    ones, of other programs, that nothing has replaced yet."""
    built = small.clean_build()
    for path in (path for path in built if not path.startswith("results/documents/")):
        folder, _, name = path.rpartition("/")
        record = read_records(str(small.folder / folder)).get(name)
        if not (small.folder / path).exists():  # Snakemake removes the files of a job before it runs it again
            continue
        if record and record["sha256"] == sha256_of_file(small.folder / path):
            assert (small.folder / path).read_text() in [build[path] for build in (built, *earlier)]


def complete(small, snakemake):
    """Runs what is left to do, and requires that all is right then."""
    small.run(snakemake)
    assert small.would_change() == set()
    assert small.planned(snakemake) == set()


def test_after_kill_9_at_any_moment_nothing_half_written_counts_and_the_next_run_completes_it(small, snakemake):
    rng, earlier = random.Random(0), []
    for _ in range(KILLS):
        earlier.append(small.clean_build())
        rng.choice([small.version.update, lambda _: None])({"scripts/table.py": rng.choice([0, 1])})
        small.write_program("scripts/table.py")
        process = started(small)
        time.sleep(rng.uniform(0.5, 3.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        require_true_records(small, *earlier)
        small.planned(snakemake, "--nolock", at_least=small.would_change())
        snakemake(small.folder, "--unlock")
    complete(small, snakemake)


def test_measurements_that_were_whole_when_snakemake_was_killed_count_and_what_reads_them_is_made(small, snakemake):
    """Snakemake marks the outputs of a job until it has seen the end of it."""
    marks = small.folder / ".snakemake/incomplete"
    for files in (OUTPUTS["measure one"], [*OUTPUTS["measure two"], *OUTPUTS["table one"]]):
        snakemake(small.folder, "--cores", "2", *files)
        for file in files:
            (marks / base64.b64encode(file.encode(), b"-_").decode()).write_text('{"external_jobid": null}')
        assert small.planned(snakemake) == with_readers(small.would_change()) > set()
    complete(small, snakemake)


def test_two_snakemakes_without_a_lock_leave_nothing_wrong_as_if_it_were_made(small, snakemake):
    processes = [started(small, "--nolock") for _ in range(2)]
    for process in processes:
        process.wait()
    require_true_records(small)
    complete(small, snakemake)


def test_a_clock_that_went_back_stops_no_job(small, snakemake):
    small.run(snakemake)
    hour = time.time() + 3600
    for path in small.folder.rglob("*"):
        if not path.is_symlink():
            os.utime(path, (hour, hour))
    assert small.planned(snakemake) == set()
    small.version["scripts/table.py"] = 1
    small.write_program("scripts/table.py")
    complete(small, snakemake)


def test_a_disk_that_fills_up_leaves_nothing_that_counts_and_the_next_run_completes_it(small, snakemake, in_mounts):
    full = "cat /dev/zero >results/fill 2>/dev/null; truncate -s -8k results/fill"
    command = " ".join(SNAKEMAKE)
    script = f"""
        mkdir results; mount -t tmpfs -o size=200k none results; {full}
        {command} && exit 1
        rm results/fill; cp -r results after_failure; {command} || exit 1
        cp -r results completed"""
    done = in_mounts(script, small.folder)
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stderr
    for copy in ("after_failure", "completed"):
        shutil.rmtree(small.folder / "results")
        (small.folder / copy).rename(small.folder / "results")
        require_true_records(small)
        assert small.planned(snakemake) == with_readers(small.would_change())
    assert small.would_change() == set()


def test_a_project_that_is_read_only_is_refused_in_one_line_before_anything_runs(small, in_mounts):
    read_only = f"mount --bind {small.folder} {small.folder}; mount -o remount,ro,bind {small.folder}"
    done = in_mounts(f"{read_only}; cd {small.folder}; {' '.join(SNAKEMAKE)} --dry-run", small.folder)
    assert done.returncode == 1
    assert f"cannot write to {small.folder}, which is read-only or belongs to another user" in done.stdout + done.stderr


def test_results_of_another_user_who_lets_nobody_read_them_are_refused_by_name_and_left_alone(small, snakemake):
    setpriv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner,-chown"]  # root as any other user
    if os.geteuid() or not shutil.which("setpriv"):
        pytest.skip("only root, with setpriv, can give files to another user")
    small.run(snakemake)
    for path in (small.folder / "results", *(small.folder / "results").rglob("*")):
        os.chown(path, 65534, 65534)
        path.chmod(0o700 if path.is_dir() else 0o600)
    done = subprocess.run([*setpriv, *SNAKEMAKE], cwd=small.folder, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Insufficient permissions to access results/" in done.stderr
    assert "Traceback" not in done.stderr
    assert small.would_change() == set()


def test_files_that_only_their_owner_may_read_plan_nothing(small, snakemake):
    subprocess.run(SNAKEMAKE, cwd=small.folder, check=True, capture_output=True, umask=0o077)
    assert oct((small.folder / "results/merged.txt").stat().st_mode)[-3:] == "600"
    assert small.planned(snakemake) == set()
