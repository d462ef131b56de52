"""A process that is ended by a student's attention still gives a row, which says how it ended."""

import json
from pathlib import Path

import pytest

from cs336_model.program.adapters.names import ADAPTERS
from profile_grid.host.leases.lease_server import Leases
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import final_result, program_result
from profile_grid.host.processes.programs import ProcessExit, ProgramFailed
from profile_grid.stages.operator.measure import measure


def job(folder: Path, adapter: str) -> Job:
    """A job that measures one of the attentions in tests/cs336_model/own_code.py."""
    dimensions = {"precision": "fp32", "batch_size": 1, "compile": "off", "attention": "own-triton", "head_dim": 16}
    program = {
        "run": "own", "dimensions": dimensions, "adapters": {ADAPTERS[1]: f"tests.cs336_model.own_code:{adapter}"},
        "context_lengths": [16, 32], "warmup_passes": 0, "measured_passes": 1, "bench_s": 0, "seed": 0, "device": "cpu",
    }  # fmt: skip
    return Job({"program": program, "environment": []}, folder, folder, folder / "log", 120.0, Leases())


def test_an_attention_that_crashes_its_process_is_a_failed_cell_with_the_code_that_did_it(tmp_path):
    result = measure(job(tmp_path, "crashing"))
    assert result["status"] == "complete"
    cells = result["facts"]["cells"]
    assert [cell["status"] for cell in cells] == ["failed"] * 2
    assert cells[0]["reason"].startswith("own-triton: while it was checked, the process ")
    assert "SIGABRT" in cells[0]["reason"] and cells[0]["forward_seconds"] == []
    assert "tests.cs336_model.own_code" in json.dumps(result["program"]["loaded"])  # so that a change of it counts


@pytest.mark.parametrize(
    ("outcome", "log_text", "ending"),
    [
        (ProcessExit(1, False, 3.0), "Timeout (0:00:30)!\n", "the process did not end in time (limit 120 s)"),
        (ProcessExit(-9, True, 120.0), "", "the process did not end in time (limit 120 s)"),
        (ProcessExit(-11, False, 3.0), "", "the process was killed by SIGSEGV"),
    ],
)
def test_a_draft_becomes_a_result_that_says_how_the_process_ended(tmp_path, outcome, log_text, ending):
    (tmp_path / "log").write_text(log_text)
    draft = {"status": "unfinished", "reason": "own-triton: while it was measured"}
    result = final_result(draft, outcome, job(tmp_path, "hanging"))
    assert result == {"status": "failed", "reason": f"own-triton: while it was measured, {ending}"}


def test_a_late_draft_is_a_stopped_result_only_if_the_process_was_killed_at_its_limit(tmp_path):
    draft = {"status": "overdue", "reason": "measure step 2: forward"}
    (tmp_path / "log").touch()
    stopped = final_result(draft, ProcessExit(-9, True, 120.0), job(tmp_path, "right"))
    assert stopped == {
        "status": "stopped",
        "reason": "stopped at the time limit of 120 s, during measure step 2: forward",
    }
    assert final_result(draft, ProcessExit(-11, False, 119.0), job(tmp_path, "right")) is draft
    (tmp_path / "result").write_text(json.dumps(draft))
    with pytest.raises(ProgramFailed, match="SIGSEGV"):
        program_result(job(tmp_path, "right"), "timing", tmp_path / "result", ProcessExit(-11, False, 119.0))
    (tmp_path / "log").write_text("Timeout (0:01:58)!\n")  # its stacks were being printed
    assert final_result(draft, ProcessExit(-11, False, 119.0), job(tmp_path, "right")) == stopped
    assert final_result(draft, ProcessExit(1, False, 119.0), job(tmp_path, "right")) is draft


def test_a_finished_result_stays_as_it_is(tmp_path):
    result = {"status": "complete", "reason": None}
    assert final_result(result, ProcessExit(0, False, 1.0), job(tmp_path, "right")) is result
