"""A tiny grid through a real Slurm of one node: a run on one of its made-up GPUs and one on both. Slurm cancels one job
and ends another at its time limit."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_recorder.nsys_profile import gpu_is_visible
from profile_grid.freshness.records import RECORDS_FILE
from tests.workflow.conftest import ROOT, TINY_GRID, copy_sources
from tests.workflow.one_node_slurm import one_node_slurm, why_not

EXECUTOR = (
    ROOT / ".venv" / "slurm"
)  # from envs/requirements-slurm.txt (.ci/run); in .venv itself it would slow every start
pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=f"no Slurm can be started here: {why_not()}"),
    pytest.mark.skipif(
        gpu_is_visible(), reason="the GPUs of this machine would be taken for those of the test's Slurm"
    ),
    pytest.mark.skipif(not EXECUTOR.exists(), reason=f"{EXECUTOR.relative_to(ROOT)} is not there"),
]
PATIENCE_S = 240
RUNS = ("alpha_ctx8_forward", "beta_ctx8_train_step_gpus2_naive")
GRID = TINY_GRID.replace("device: cpu", "device: auto").replace(
    """
    - models: [alpha, beta]
      context_lengths: [8]
      modes: [forward]
""",
    """
    - {models: [alpha], context_lengths: [8], modes: [forward]}
    - {models: [beta], context_lengths: [8], modes: [train_step], gpus: [2], parallels: [naive]}
""",
)


def jobs() -> dict[str, str]:
    """The state of every job by its number."""
    said = subprocess.run(["squeue", "-h", "-t", "all", "-o", "%i %T"], capture_output=True, text=True, check=True)
    return dict(line.split() for line in said.stdout.splitlines())


def gpus_of_jobs() -> list[str]:
    """What every job asked for."""
    said = subprocess.run(["scontrol", "show", "jobs"], capture_output=True, text=True, check=True).stdout
    return sorted(re.findall(r"TresPerJob=(\S+)", said))


def wait_for(job: str, state: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while jobs().get(job) != state:
        assert time.monotonic() < deadline, f"job {job} did not become {state}: {jobs()}"
        time.sleep(0.1)


def wait_until_it_prints(job: str, folder: Path) -> None:
    deadline, logs = time.monotonic() + PATIENCE_S, folder / ".snakemake" / "slurm_logs"
    while not any(path.stat().st_size for path in logs.rglob(f"{job}.log")):
        assert time.monotonic() < deadline, f"job {job} has printed nothing: {jobs()}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def run_by_slurm(tmp_path_factory):
    """The project's folder, the states of Slurm's jobs by their numbers, and the GPUs that they asked for. One job is
    cancelled as soon as it runs, the next stopped, so that it reaches its time limit."""
    folder = copy_sources(ROOT, tmp_path_factory.mktemp("slurm-project") / "project")
    (folder / "config.yaml").write_text(GRID)
    command = [
        sys.executable, "-m", "snakemake", "--workflow-profile", "profiles/slurm", "--slurm-status-command", "squeue",
        "--slurm-init-seconds-before-status-checks", "2", "--slurm-keep-successful-logs",
        "results/tables/provenance.json",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(EXECUTOR)}
    with (
        one_node_slurm(tmp_path_factory.mktemp("slurm")),
        (folder / "output").open("w+") as output,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output) as snakemake,
    ):
        try:
            wait_for("1", "RUNNING")
            subprocess.run(["scancel", "1"], check=True)
            wait_for("2", "RUNNING")
            wait_until_it_prints("2", folder)  # a signal reaches only the processes that are there
            subprocess.run(["scancel", "--signal=STOP", "--full", "2"], check=True)
            subprocess.run(["scontrol", "update", "jobid=2", "endtime=now+1"], check=True)
            wait_for("2", "TIMEOUT")
            snakemake.wait(timeout=PATIENCE_S)
        finally:
            snakemake.kill()
        states, gpus = jobs(), gpus_of_jobs()
        output.seek(0)
        assert snakemake.returncode == 0, output.read()
    return folder, states, gpus


def test_a_cancelled_job_and_one_that_took_too_long_are_told_apart_and_tried_again(run_by_slurm):
    _, states, _ = run_by_slurm
    assert (states.pop("1"), states.pop("2")) == ("CANCELLED", "TIMEOUT")
    assert sorted(states.values()) == ["COMPLETED"] * 2


def test_the_grid_comes_out_as_without_slurm(run_by_slurm, finished_project):
    folder, _, _ = run_by_slurm
    assert (folder / "results" / "tables" / "runs.csv").exists()
    results = [path for path in finished_project.glob(f"results/runs/{RUNS[0]}/*.json") if path.name != RECORDS_FILE]
    assert len(results) > 3
    for path in results:
        ours = json.loads((folder / path.relative_to(finished_project)).read_text())
        expected = "unsupported" if path.stem.startswith("counters") else "complete"  # no GPU is there
        assert ours["status"] == json.loads(path.read_text())["status"] == expected


def test_a_job_asks_for_the_gpus_of_its_run_and_its_processes_have_them(run_by_slurm):
    folder, _, gpus = run_by_slurm
    assert gpus == ["gres:gpu:1", "gres:gpu:1", "gres:gpu:2", "gres:gpu:2"]  # each was tried again
    for name in ("timing", "capture"):
        result = json.loads((folder / f"results/runs/{RUNS[1]}/{name}.json").read_text())
        assert (result["status"], len(result["facts"]["ranks"])) == ("complete", 2)


def test_timing_and_capture_of_a_run_are_one_job_and_the_rest_runs_where_it_was_planned(run_by_slurm):
    folder, _, _ = run_by_slurm
    rules = {path.name for path in (folder / ".snakemake" / "slurm_logs").iterdir()}
    counted = "gpus_1_capture_counters_tables_of_capture_tables_of_counters_timing"
    assert rules == {f"group_{name}" for name in (counted, "gpus_2_capture_tables_of_capture_timing")}


def test_several_runs_are_one_job_where_asked_for_never_with_one_on_more_gpus(tmp_path):
    folder = copy_sources(ROOT, tmp_path / "project")
    (folder / "config.yaml").write_text(GRID.replace("context_lengths: [8]", "context_lengths: [8, 16]"))
    planned = subprocess.run(
        [sys.executable, "-m", "snakemake", "--workflow-profile", "profiles/slurm", "--quiet", "reason", "--dry-run",
         "--group-components", "gpus_1=2", "--", "results/tables/provenance.json"],
        cwd=folder, env=os.environ | {"PYTHONPATH": str(EXECUTOR)}, capture_output=True, text=True,
    )  # fmt: skip
    assert planned.returncode == 0, planned.stderr
    planned_groups = re.findall(r"Group job (\S+) .*\n\n((?: +.*\n)+)", planned.stdout + planned.stderr)
    of_group = sorted((name, sorted(re.findall(r"timing (\S+)", jobs))) for name, jobs in planned_groups)
    assert of_group == [
        ("gpus_1", ["alpha_ctx16_forward", "alpha_ctx8_forward"]),
        ("gpus_2", ["beta_ctx16_train_step_gpus2_naive"]),
        ("gpus_2", ["beta_ctx8_train_step_gpus2_naive"]),
    ]


def test_the_lines_of_progress_count_the_measurements_of_all_jobs(run_by_slurm):
    folder, _, _ = run_by_slurm
    logs = "".join(path.read_text() for path in Path(folder, ".snakemake", "slurm_logs").rglob("*.log"))
    assert all(f"[{number}/5]" in logs for number in (1, 2, 3, 4, 5))
