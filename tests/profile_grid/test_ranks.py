"""What the ranks of a run leave, as the result of one run."""

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from cs336_model.arguments import PROJECT_ARGUMENTS
from cs336_model.arithmetic.flops import PROJECT_CONSTRUCTOR
from cs336_model.program.parallel.launch import FIRST_TO_FAIL
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.programs import ProcessExit, ProgramFailed
from profile_grid.host.processes.ranks import (
    LOG_FOLDER,
    existing_rank_files,
    gather_logs,
    merge_rank_results,
    rank_filename,
    read_rank_results,
)
from profile_grid.stages.capture.measure import measure as measure_capture
from profile_grid.stages.timing.measure import measure as measure_timing
from tests.default_values import DEFAULT_VALUES

ENDED = ProcessExit(0, False, 1.0)
SIZES = {"rope_theta": 10000.0, "d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32}
PROGRAM = {
    "run": "tiny",
    "dimensions": {"model": "tiny", "context_length": 8, "mode": "train_step", "batch_size": 4, **DEFAULT_VALUES}
    | {"gpus": 2, "parallel": "naive"},
    "constructor": PROJECT_CONSTRUCTOR, "config": None, "arguments": PROJECT_ARGUMENTS, "sizes": SIZES,
    "annotate": {}, "replace": {},
    "vocab_size": 50, "warmup_steps": 1, "measured_steps": 2, "seed": 0, "device": "cpu",
}  # fmt: skip


def job(folder: Path, **changes) -> Job:
    """A job of two ranks, with other values of the program."""
    for name in ("results", "scratch"):
        (folder / name).mkdir()
    told = {"program": PROGRAM | changes, "backend": "torch", "environment": [], "nsys_options": []}
    return Job(told, folder / "results", folder / "scratch", folder / "log", 100.0, Leases())


def rank(step_seconds, no_sync=(1.0,), device=None) -> dict:
    return {
        "status": "complete", "rank_device": device, "step_seconds": step_seconds, "phase_seconds": {},
        "step_no_sync_seconds": list(no_sync), "memory": {"peak_allocated_bytes": None},
    }  # fmt: skip


def test_a_step_takes_as_long_as_its_slowest_rank():
    run, facts = merge_rank_results([rank([1.0, 4.0], [0.5], "a"), rank([2.0, 3.0], [0.7], "b")])
    assert (run["step_seconds"], facts["step_no_sync_seconds"]) == ([2.0, 4.0], [0.7])
    assert [(one["rank"], one["device"], one["step_seconds"]) for one in facts["ranks"]] == [
        (0, "a", [1.0, 4.0]), (1, "b", [2.0, 3.0]),
    ]  # fmt: skip


def test_a_run_of_one_process_is_its_result_and_has_no_facts_of_ranks():
    assert merge_rank_results([rank([1.0])]) == (rank([1.0]), {})


def test_files_of_the_first_rank_have_the_names_of_a_run_of_one(tmp_path):
    names = [rank_filename("capture.sqlite", number) for number in (0, 1, 10)]
    assert names == ["capture.sqlite", "capture_rank1.sqlite", "capture_rank10.sqlite"]
    for name in names[:2]:
        (tmp_path / name).touch()
    assert [path.name for path in existing_rank_files(tmp_path, "capture.sqlite")] == names[:2]


def test_a_result_without_times_is_that_of_the_run_whatever_the_others_have(tmp_path):
    (tmp_path / "r_rank1.json").write_text(json.dumps({"status": "out_of_memory"}))
    assert read_rank_results(job(tmp_path), tmp_path / "r.json", ENDED) == [{"status": "out_of_memory"}]


def test_of_two_results_without_times_that_of_the_rank_that_failed_first_counts(tmp_path):
    told = job(tmp_path)
    for number, reason in enumerate(("lost a peer", "its own error")):
        failed = {"status": "unsupported", "reason": reason}
        (told.scratch / rank_filename("r.json", number)).write_text(json.dumps(failed))
    (told.scratch / LOG_FOLDER).mkdir()
    (told.scratch / LOG_FOLDER / FIRST_TO_FAIL).write_text("1")
    assert read_rank_results(told, told.scratch / "r.json", ENDED) == [
        {"status": "unsupported", "reason": "its own error"}
    ]


def test_ranks_of_which_one_wrote_nothing_wrote_nothing(tmp_path):
    (tmp_path / "r.json").write_text(json.dumps({"status": "complete"}))
    assert read_rank_results(job(tmp_path), tmp_path / "r.json", ENDED) == []


def test_the_log_of_the_rank_that_failed_first_is_the_end_of_the_log(tmp_path):
    for number, text in enumerate(("its own error\n", "lost a peer\n", "lost a peer too\n")):
        (tmp_path / f"rank{number}.log").write_text(text)
    (tmp_path / FIRST_TO_FAIL).write_text("0")
    gather_logs(tmp_path, tmp_path / "log")
    assert (tmp_path / "log").read_text().endswith("--- rank0, which failed first\nits own error\n")


PARAMETERS = 2 * 50 * 16 + (4 * 16**2 + 3 * 16 * 32 + 2 * 16) + 16  # embedding and head, block, norm
BYTES = 4 * PARAMETERS
IN_NAME = re.compile(r"(.*), bytes = (\d+)")


@pytest.mark.parametrize(
    ("values", "sent"),
    [
        ({"parallel": "naive"}, {"all-reduce": BYTES}),
        ({"parallel": "ddp"}, {"all-reduce": BYTES}),
        # parameters outside of blocks stay gathered from the forward to the backward pass
        ({"parallel": "fsdp"}, {"all-gather": 2 * BYTES - 4 * (2 * 50 * 16 + 16), "reduce-scatter": BYTES}),
    ],
    ids=lambda case: case.get("parallel", ""),
)
def test_the_ranks_of_a_run_are_captured_together_with_the_bytes_that_they_communicate(tmp_path, values, sent):
    result = measure_capture(job(tmp_path, dimensions=PROGRAM["dimensions"] | values))
    files = ["capture.sqlite", "capture_rank1.sqlite"]
    assert (result["status"], [one["file"] for one in result["facts"]["ranks"]]) == ("complete", files)
    for name in files:
        with closing(sqlite3.connect(tmp_path / "results" / name)) as database:
            texts = [text for (text,) in database.execute("SELECT text FROM NVTX_EVENTS")]
        assert texts.count("step") == 2
        in_steps = Counter()
        for operation, size in (match.groups() for text in texts if (match := IN_NAME.fullmatch(text))):
            in_steps[operation] += int(size) / 2
        assert in_steps == sent


def test_a_rank_that_crashes_fails_the_job_with_its_own_error(tmp_path):
    told = job(tmp_path, constructor="tests.profile_grid.fails_in_one_rank:Model")
    with pytest.raises(ProgramFailed, match="the second rank has this error"):
        measure_timing(told)
