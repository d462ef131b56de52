"""What fails, fails as it should: as a result, as an incomplete run with its reason, or as a job that crashed.

The grids here are run by Snakemake in copies of this project. In most of them a fake program stands for the benchmark.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from tests.kernel_tables.synthetic import Synthetic
from tests.workflow.conftest import FAKES, ROOT, copy_sources, draw_only, write_config
from workflow import sources

OUT_OF_MEMORY = """
import torch
from cs336_model.model.transformer import TransformerLM

def Model(d_model, **sizes):
    if d_model == 48:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.25 GiB. host gpu-node-17, user anna")
    return TransformerLM(d_model=d_model, **sizes)
"""
TIMING = "results/runs/one_ctx8_forward/timing.json"


def install_fake_nsys(folder):
    folder.mkdir()
    (folder / "nsys").write_text((FAKES / "nsys").read_text().replace("/usr/bin/env python3", sys.executable))
    (folder / "nsys").chmod(0o755)
    capture = Synthetic().range("measure", 0, 1000).range("step", 10, 300).range("forward", 20, 200)
    capture.write(folder / "report")  # of a program on the CPU: ranges, no kernels
    return folder


@pytest.fixture(scope="module")
def failed_grid(tmp_path_factory, snakemake):
    """A grid of three runs: one whole, one that nsys captures nothing of, one that runs out of memory."""
    folder = copy_sources(ROOT, tmp_path_factory.mktemp("failed") / "project")
    capture = {"backend": "nsys", "warmup_steps": 0, "measured_steps": 1, "nsys_options": []}
    write_config(folder, capture=capture, program={"constructor": "my_models:Model"})
    (folder / "my_models.py").write_text(OUT_OF_MEMORY)
    draw_only(folder)
    nsys = install_fake_nsys(folder.parent / "bin")
    (nsys / "manner-two").write_text("lacks a right")
    path = f"{nsys}{os.pathsep}{os.environ['PATH']}"
    run = snakemake(folder, "--cores", "2", "--resources", "gpu=2", PATH=path)
    return folder, run, path


def test_an_incomplete_run_makes_the_whole_fail_and_is_named_with_its_reason_and_the_way_on(failed_grid):
    _, run, _ = failed_grid
    assert run.status != 0
    assert "1 of 3 runs are incomplete" in run.output
    assert "two_ctx8_forward: nsys ended with exit status 1 before the program had written its result" in run.output
    assert "--forcerun results/runs/two_ctx8_forward/capture.json" in run.output
    assert "logs/two_ctx8_forward/capture.log" in run.output


def test_the_other_runs_went_on_and_the_documents_show_the_missing_cell_with_its_reason(failed_grid):
    folder, _, _ = failed_grid
    runs = pd.read_csv(folder / "results/tables/runs.csv").set_index("model")
    assert runs["capture_status"].to_dict() == {"one": "complete", "two": "incomplete", "three": "out_of_memory"}
    assert runs["timing_status"].to_dict() == {"one": "complete", "two": "complete", "three": "out_of_memory"}
    answers = (folder / "results/answers/answers.md").read_text()
    assert "nsys ended with exit status 1 before the program had written its result" in answers
    assert not (folder / "results/complete.json").exists()


def test_an_incomplete_capture_was_tried_twice(failed_grid):
    folder, _, _ = failed_grid
    profiles = (folder.parent / "bin" / "profiles").read_text().splitlines()
    of_runs = [line for line in profiles if '"run": "smoke"' not in line]
    tries = [re.search(r'"model": "(\w+)"', line)[1] for line in of_runs]
    assert sorted(tries) == ["one", "three", "two", "two"]


def test_out_of_memory_is_a_cell_of_its_own_with_what_was_asked_for(failed_grid):
    folder, _, _ = failed_grid
    run = pd.read_csv(folder / "results/tables/runs.csv").set_index("model").loc["three"]
    assert run["oom_requested_bytes"] == 20.25 * 2**30
    assert run["oom_during"] == "initialise"
    assert "20.2 GiB requested" in (folder / "results/answers/answers.md").read_text()


def test_what_nsys_and_the_model_print_when_they_fail_stays_in_the_logs(failed_grid):
    folder, _, _ = failed_grid
    secrets = (b"gpu-node-17", b"anna", b"s3cr3t", b"my models", b"secret run")  # tests/fakes/nsys, OUT_OF_MEMORY

    def told(place):
        contents = [path.read_bytes() for path in (folder / place).rglob("*") if path.is_file()]
        return [secret for secret in secrets if any(secret in content for content in contents)]

    assert told("logs") == list(secrets)
    assert told("results") == []


def test_the_next_run_measures_nothing_again_and_fails_with_the_same_message(failed_grid, snakemake):
    folder, _, path = failed_grid
    again = snakemake(folder, "--cores", "2", PATH=path)
    assert again.status != 0
    assert set(again.jobs) <= {"complete", "all"}
    assert "1 of 3 runs are incomplete" in again.output


def test_the_command_that_the_message_gives_captures_that_run_again_and_no_other(failed_grid, snakemake):
    folder, run, path = failed_grid
    command = re.search(r"snakemake (--cores 1 all --forcerun .*)", run.output)[1]
    planned = snakemake(folder, *command.split(), "--dry-run", PATH=path)
    measured = [job for job in planned.jobs if job.startswith(("timing", "capture"))]
    assert measured == ["capture two_ctx8_forward"]


def timing_of(model):
    return f"results/runs/{model}_ctx8_forward/timing.json"


def test_a_crash_fails_its_job_with_the_end_of_its_log_and_the_others_go_on(fake_project, snakemake):
    (fake_project / "program-two").write_text("crashes")
    run = snakemake(fake_project, *map(timing_of, ("one", "two", "three")), "--cores", "1")
    assert run.status != 0
    assert "timing of two_ctx8_forward ended with exit status 1; the end of its log:" in run.output
    assert "  | RuntimeError: a defect of the model" in run.output
    assert "complete log: logs/two_ctx8_forward/timing.log" in run.output
    assert [(fake_project / timing_of(model)).exists() for model in ("one", "two", "three")] == [True, False, True]


NOT_A_NUMBER = """
import torch
from cs336_model.model.transformer import TransformerLM

def Model(**sizes):
    model = TransformerLM(**sizes)
    with torch.no_grad():
        next(model.parameters()).fill_(float("nan"))
    return model
"""


def test_a_loss_that_is_not_a_number_fails_the_job_and_says_which(tmp_path, snakemake):
    folder = copy_sources(ROOT, tmp_path / "project")
    write_config(folder, program={"constructor": "my_models:Model"})
    (folder / "my_models.py").write_text(NOT_A_NUMBER)
    run = snakemake(folder, TIMING, "--cores", "1")
    assert run.status != 0
    assert run.jobs == ["timing one_ctx8_forward"]  # once: what it computes will not change
    assert "of one_ctx8_forward is nan: its times mean nothing" in run.output


def test_a_run_that_hangs_ends_at_the_limit_of_the_configuration(fake_project, snakemake):
    (fake_project / "program").write_text("hangs")
    write_config(fake_project, time_limit_s=1)
    run = snakemake(fake_project, TIMING, "--cores", "1")
    assert run.status != 0
    assert "timing of one_ctx8_forward was killed at the time limit of 1 s" in run.output
    assert not is_alive(int((fake_project / "pid").read_text()))


def test_a_run_that_says_in_time_what_it_is_stopped_during_is_a_result_and_no_failed_job(fake_project, snakemake):
    (fake_project / "program-two").write_text("is late")
    write_config(fake_project, time_limit_s=3)
    run = snakemake(fake_project, *map(timing_of, ("one", "two")), "--cores", "1")
    assert run.status == 0
    one, two = (json.loads((fake_project / timing_of(model)).read_text()) for model in ("one", "two"))
    assert (one["status"], two["status"]) == ("complete", "stopped")
    assert two["reason"] == "stopped at the time limit of 3 s, during measure step 2: backward"
    assert two["facts"]["stopped_at_s"] == 3 and two["program"]["status"] == "stopped"
    assert not is_alive(int((fake_project / "pid").read_text()))


@pytest.mark.parametrize(
    ("limit_s", "reason"), [(600, None), (601, "it was stopped at 600 s, and time_limit_s is 601")]
)
def test_a_stopped_result_is_stale_once_the_time_limit_is_raised(monkeypatch, tmp_path, limit_s, reason):
    origin = SimpleNamespace(facts={"stopped_at_s": 600.0}, files={}, specification={}, sources="s", program=None)
    monkeypatch.setattr(sources, "read_origin", lambda path: origin)
    outputs = [str(tmp_path / "timing.json")]
    assert sources.stale_result_reason(outputs, "{}", "s", lambda path: None, limit_s) == reason


def is_alive(pid):
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=120.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def parent_of(pid):
    return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])


@pytest.fixture
def hanging(fake_project):
    """A Snakemake whose first measurement hangs, and the process of that measurement."""
    (fake_project / "program").write_text("hangs")
    started = subprocess.Popen(
        [sys.executable, "-m", "snakemake", TIMING, "--cores", "1"],
        cwd=fake_project, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert wait_until(lambda: (fake_project / "pid").read_text())
    (fake_project / "program").write_text("ends well")
    yield fake_project, started, int((fake_project / "pid").read_text())
    started.kill()
    started.wait()


def test_a_second_snakemake_in_one_folder_says_that_there_is_another(hanging, snakemake):
    folder, first, program = hanging
    second = snakemake(folder, TIMING, "--cores", "1")
    assert second.status != 0
    assert "Directory cannot be locked" in second.output
    assert first.poll() is None
    assert is_alive(program)


def test_after_kill_9_of_snakemake_no_program_is_left_and_the_next_one_continues_once_unlocked(hanging, snakemake):
    folder, first, program = hanging
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert wait_until(lambda: not is_alive(program))
    assert not (folder / TIMING).exists()
    assert "--unlock" in snakemake(folder, TIMING, "--cores", "1").output
    assert snakemake(folder, "--unlock").status == 0
    assert snakemake(folder, TIMING, "--cores", "1").jobs == ["timing one_ctx8_forward"]
    assert json.loads((folder / TIMING).read_text())["status"] == "complete"


def test_after_kill_9_of_a_job_its_program_ends_and_snakemake_says_that_it_failed(hanging, snakemake):
    folder, first, program = hanging
    job = parent_of(parent_of(program))  # the program's supervisor is between
    os.kill(job, signal.SIGKILL)
    assert first.wait(timeout=20) != 0
    assert wait_until(lambda: not is_alive(program))
    assert snakemake(folder, TIMING, "--cores", "1").jobs == ["timing one_ctx8_forward"]


def test_what_a_killed_capture_left_half_written_is_removed_and_never_taken_for_a_result(fake_project, snakemake):
    folder = fake_project / "results" / "runs" / "one_ctx8_forward"
    (folder / ".capture-killed" / "attempt-1").mkdir(parents=True)
    (folder / ".capture-killed" / "attempt-1" / "capture.sqlite").write_text("half")
    (folder / ".capture.json.4711.partial").write_text('{"status": "comp')
    run = snakemake(fake_project, str(folder.relative_to(fake_project) / "capture.json"), "--cores", "1")
    assert run.jobs == ["capture one_ctx8_forward"]
    left = {path.name for path in folder.iterdir()} - {"capture.json", "capture.sqlite"}
    assert left == set()
