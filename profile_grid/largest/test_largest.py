"""The bisection for the largest value that fits, its tries, and the table of its results."""

import gzip
import json
from argparse import Namespace
from pathlib import Path

import pytest

from profile_grid.errors import OutsideError
from profile_grid.host.processes.job import Job
from profile_grid.largest import fitting as largest
from profile_grid.largest.fitting import FitResult, file_name, largest_fitting, try_fit, with_value
from profile_grid.largest.tables import largest_table
from tests.profile_grid.made_up import Made
from workflow.scripts import largest as script

PROGRAM = {
    "run": "tiny", "dimensions": {"context_length": 64, "batch_size": 4}, "sizes": {"d_model": 8},
    "warmup_steps": 5, "measured_steps": 10,
}  # fmt: skip


@pytest.mark.parametrize("start", [1, 2, 7, 30, 100])
def test_the_bisection_finds_what_trying_all_finds_wherever_it_starts(start):
    for limit in range(60):
        tried = []

        def fits(number, limit=limit, tried=tried):
            tried.append(number)
            return number <= limit

        assert largest_fitting(fits, start) == limit
        assert min(tried) >= 1 and len(tried) == len(set(tried)) <= 16


def test_few_values_are_tried_where_the_start_is_near():
    tried = []
    assert largest_fitting(lambda number: tried.append(number) or number <= 101, 100) == 101
    assert len(tried) <= 4


def test_another_length_and_another_batch_are_dimensions_of_the_program():
    with_length = with_value({"program": PROGRAM}, "context_length", 128)["program"]
    assert with_length["dimensions"] == {"context_length": 128, "batch_size": 4}
    with_batch = with_value({"program": PROGRAM}, "batch_size", 9)["program"]
    assert (
        with_batch["dimensions"] == {"context_length": 64, "batch_size": 9} and with_batch["sizes"] == PROGRAM["sizes"]
    )
    assert (with_batch["warmup_steps"], with_batch["measured_steps"]) == (1, 1)
    assert PROGRAM["dimensions"] == {"context_length": 64, "batch_size": 4}


def result(status: str, device: str, reserved: int | None = None, total: int | None = None) -> dict:
    memory = {"peak_reserved_bytes": reserved, "device_total_bytes": total}
    return {"status": status, "reason": "why", "program": {"memory": memory, "machine": {"device": device}}}


@pytest.fixture
def try_of(monkeypatch, tmp_path):
    """A function that calls `try_fit` for a program that ends with this result; its history has these counters."""

    def run(ended: dict, limit: int | None = None, requested: int = 0, reserved: int | None = None) -> FitResult:
        counters = {"requested_peak": requested, "reserved_peak": reserved}
        history = gzip.compress(json.dumps({"counters": counters}).encode())
        (tmp_path / "memory_history.json.gz").write_bytes(history)
        monkeypatch.setattr(largest.timing if limit is None else largest.memory, "measure", lambda job: ended)
        return try_fit(Job({"program": PROGRAM}, tmp_path, tmp_path, Path("log"), 1, None), limit)

    return run


def test_on_a_gpu_what_ends_fits_and_what_runs_out_of_memory_does_not(try_of):
    assert try_of(result("complete", "cuda", 70, 100)) == FitResult(True, 70, 100)
    assert try_of(result("out_of_memory", "cuda", None, 100)) == FitResult(False, None, 100)


def test_with_a_limit_what_was_counted_decides(try_of):
    assert try_of(result("complete", "cpu"), limit=100, requested=100) == FitResult(True, 100, None)
    assert try_of(result("complete", "cpu"), limit=100, requested=101) == FitResult(False, 101, None)
    assert try_of(result("complete", "cuda", 1, 500), limit=100, requested=60, reserved=120) == FitResult(
        False, 120, 500
    )


def test_a_processor_without_a_limit_and_a_variant_that_is_refused_are_told_in_one_line(try_of):
    with pytest.raises(OutsideError, match="set a limit: --memory-gib"):
        try_of(result("complete", "cpu"))
    with pytest.raises(OutsideError, match="tiny cannot be measured: why"):
        try_of(result("unsupported", "cuda"))


def test_the_bisection_goes_on_from_what_the_shapes_let_expect_once_the_memory_is_known(monkeypatch):
    tried = []

    def try_value(specification, limit, arguments):
        tried.append(specification["program"]["dimensions"]["context_length"])
        return FitResult(tried[-1] <= 700, 1, 10 * 2**30)

    monkeypatch.setattr(script, "try_value", try_value)
    monkeypatch.setattr(script, "predicted_largest", lambda program, dimension, available: available // 2**30 * 70)
    options = Namespace(dimension="context_length", multiple_of=None, memory_gib=None)
    search = script.bisect_largest(ENTRY, options)
    assert tried == [512, 576, 640, 768, 704]
    assert (search["largest"], search["predicted"], search["limit_bytes"]) == (640, 630, 10 * 2**30)


ENTRY = Made(mode="train_step").leading | {"specifications": {"timing": {"program": PROGRAM}}}
RECORD = {
    "dimension": "batch_size", "largest": 21, "predicted": 24, "multiple_of": 1, "limit_bytes": 2**34,
    "specification": {"program": PROGRAM},
    "tries": [{"value": value, "fits": value <= 21} for value in (4, 8, 16, 21, 22, 32)],
}  # fmt: skip


def test_what_was_found_is_a_row_of_its_run_beside_what_the_shapes_let_expect(tmp_path):
    (tmp_path / file_name(ENTRY["run"], "batch_size")).write_text(json.dumps(RECORD))
    (row,) = largest_table([ENTRY], tmp_path).to_dict("records")
    assert (row["run"], row["fitted"]) == (ENTRY["run"], "batch_size")
    assert [row[name] for name in ("largest", "fails_at", "predicted", "tries")] == [21, 22, 24, 6]
    assert len(largest_table([ENTRY | {"run": "another"}], tmp_path)) == 0


OTHER_SETTINGS = json.dumps(RECORD | {"specification": {"program": PROGRAM | {"seed": 1}}})


@pytest.mark.parametrize(
    ("text", "reason"),
    [("{}", "is damaged"), ("[1]", "is damaged"), (OTHER_SETTINGS, "was measured with other settings")],
)
def test_what_was_found_with_other_settings_or_is_damaged_is_named_with_the_command(tmp_path, text, reason):
    (tmp_path / file_name(ENTRY["run"], "batch_size")).write_text(text)
    command = "python -m workflow.scripts.largest --run small_ctx512_train_step --dimension batch_size"
    with pytest.raises(OutsideError, match=f"small_ctx512_train_step_batch_size.json {reason}.*{command}"):
        largest_table([ENTRY], tmp_path)
