"""The tables of a run on several GPUs, from a made-up capture of each rank."""

from pathlib import Path

import pytest

from profile_grid.results.capture_identity import file_identity, write_specification
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import StageResult
from profile_grid.stages.capture.tables import RANK_TABLES, run_tables
from profile_grid.stages.timing.tables import losses_table, rank_times_table
from profile_grid.study.dimensions import KEYS
from profile_grid.typed_json import parse_as
from tests.kernel_tables.synthetic import Synthetic
from tests.profile_grid.made_up_results import CAPTURE, TIMING, changed

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FILES = ["capture.sqlite", "capture_rank1.sqlite", "capture_rank2.sqlite"]


def write_capture(rank: int, folder: Path, steps: int = 2) -> Path:
    """Steps of 1000 ns on a GPU with the number 0. Rank N computes for 300 ns; its all-reduce takes 200 − 50 N ns."""
    capture = Synthetic().range("measure", 0, 1000 * steps)
    for begin in range(0, 1000 * steps, 1000):
        capture.range("step", begin, begin + 1000).range("backward", begin + 10, begin + 900)
        capture.kernel("gemm", at=begin + 50, start=begin + 100, duration=300)
        capture.range("all-reduce, bytes = 4000", begin + 60, begin + 70)
        capture.kernel(NCCL, at=begin + 65, start=begin + 350 + 50 * rank, duration=200 - 50 * rank, stream=9)
    path = capture.write(folder / FILES[rank])
    write_specification(path, CAPTURE["specification"])
    return path


def result_of(folder: Path, ranks: int = 3, **facts) -> StageResult:
    """The result of the stage capture, whose files are in the folder."""
    spec = {"measured_steps": 2, "dimensions": {"precision": "fp32"}}
    record = changed(CAPTURE, program__spec=spec, program__machine__device="cuda", **facts)
    record["facts"] |= {"backend": "nsys", "ranks": [{"rank": rank, "file": FILES[rank]} for rank in range(ranks)]}
    record["files"] = {name: file_identity(folder / name) for name in FILES[:ranks]}
    return parse_as(StageResult, record)


@pytest.fixture
def folder(tmp_path) -> Path:
    for rank in range(3):
        write_capture(rank, tmp_path)
    return tmp_path


def test_every_rank_has_its_phases_its_steps_and_its_collectives(folder):
    status, tables = run_tables(result_of(folder), folder)
    assert status["status"] == "complete"
    phases = tables["rank_phases"].query("phase == 'backward' and step == 1")
    assert phases[["rank", "device", "gpu_busy_ns", "kernel_ns"]].values.tolist() == [
        [0, 0, 450, 500],
        [1, 0, 450, 450],
        [2, 0, 400, 400],
    ]
    steps = tables["rank_steps"].query("step == 0")
    columns = ["rank", "step_ns", "exposed_communication_ns", "idle_ns", "transfer_ns", "waiting_ns", "bytes"]
    assert steps[columns].values.tolist() == [
        [0, 1000, 150, 550, 100, 100, 4000],
        [1, 1000, 150, 550, 100, 50, 4000],
        [2, 1000, 100, 600, 100, 0, 4000],
    ]
    assert tables["collectives"]["bus_gb_per_s"].tolist() == pytest.approx([40.0 * 4 / 3] * 6)


def test_the_other_tables_of_the_run_are_those_of_rank_0(folder):
    _, tables = run_tables(result_of(folder), folder)
    assert tables["kernels"]["launches"].sum() == 4
    assert tables["phases"].query("phase == 'step'")["kernel_ns"].tolist() == [500, 500]


def test_a_run_of_one_process_has_no_rows_by_rank(folder):
    record = result_of(folder, ranks=1)
    record.facts.pop("ranks")
    status, tables = run_tables(record, folder)
    assert status["status"] == "complete" and len(tables["phases"])
    assert {table.name for table in RANK_TABLES}.isdisjoint(tables)


def test_a_rank_whose_capture_is_missing_makes_the_run_incomplete(folder):
    record = result_of(folder)
    (folder / FILES[1]).unlink()
    status, tables = run_tables(record, folder)
    assert status["status"] == "incomplete"
    assert status["reason"] == "no valid capture of this run: capture_rank1.sqlite is missing"
    assert tables == {}


def test_a_rank_that_lacks_steps_makes_the_run_incomplete(folder):
    write_capture(2, folder, steps=1)
    status, tables = run_tables(result_of(folder), folder)
    assert status["status"] == "incomplete"
    assert status["reason"].startswith("rank 2: found 1 ranges 'step', expected 2")
    assert tables == {}


def test_a_run_that_was_not_captured_says_why_and_not_that_ranks_are_missing(folder):
    record = result_of(folder, status="incomplete", reason="rank 1 died")
    (folder / FILES[1]).unlink()
    status, _ = run_tables(record, folder)
    assert (status["status"], status["reason"]) == ("incomplete", "rank 1 died")


def test_every_loss_of_a_run_is_kept_with_its_number():
    entry = {"run": "a", "specifications": {}} | dict.fromkeys(KEYS, 1)
    record = changed(TIMING)
    record["program"]["losses"] = [4.0, 3.5]
    status = type("Complete", (), {"status": "complete"})
    table = losses_table([MeasuredRun(entry, {"timing": parse_as(StageResult, record)}, {"timing": status})])
    assert table[["run", "number", "loss"]].values.tolist() == [["a", 0, 4.0], ["a", 1, 3.5]]


def test_the_times_of_ranks_are_told_of_each_and_of_the_slowest_at_every_step():
    ranks = [
        {"rank": 0, "step_seconds": [0.01, 0.03], "step_no_sync_seconds": [0.01, 0.01], "phase_seconds": {"loss": []}},
        {"rank": 1, "step_seconds": [0.02, 0.02], "step_no_sync_seconds": [0.01, 0.02], "phase_seconds": {}},
    ]
    record = changed(TIMING, facts={"ranks": ranks, "step_no_sync_seconds": [0.01, 0.02]})
    record["program"]["step_seconds"] = [0.02, 0.03]
    entry = {"run": "a", "specifications": {}} | dict.fromkeys(KEYS, 1)
    result = parse_as(StageResult, record)
    status = type("Complete", (), {"status": "complete"})
    table = rank_times_table([MeasuredRun(entry, {"timing": result}, {"timing": status})])
    assert table[["rank", "phase", "n", "mean_ms"]].values.tolist() == [
        [-1, "step", 2, 25.0],
        [-1, "step without communication", 2, 15.0],
        [0, "step", 2, 20.0],
        [0, "step without communication", 2, 10.0],
        [1, "step", 2, 20.0],
        [1, "step without communication", 2, 15.0],
    ]
