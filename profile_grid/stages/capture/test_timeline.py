"""The timeline of a step, from a tiny capture: its rows, their lanes, and their times after the begin of the step."""

import pandas as pd

from kernel_tables.page.timeline import Names
from kernel_tables.trace import Trace
from profile_grid.page.step_views import run_timeline
from profile_grid.stages.capture.timeline import COLUMNS, empty_timeline, timeline
from profile_grid.study.runs import Run, shown_run_name
from tests.default_values import DEFAULT_VALUES
from tests.kernel_tables.ranks.test_ranks import began
from tests.kernel_tables.synthetic import Synthetic


def two_steps(folder):
    """measure > 2 x step > forward; the second step launches a kernel and a backward kernel from another thread."""
    capture = Synthetic().range("measure", 0, 1000)
    capture.range("step", 100, 200).range("forward", 110, 190).kernel("early", at=120)
    capture.range("step", 500, 900).range("forward", 510, 600).kernel("gemm", at=520)
    capture.range("backward", 610, 800).kernel("grad", at=700, thread=2)
    return capture.write(folder / "capture.sqlite")


def test_the_middle_step_is_shown_from_its_begin(tmp_path):
    with Trace(two_steps(tmp_path)) as trace:
        table = timeline([trace], "small_ctx128_train_step")
    assert list(table.columns) == COLUMNS
    ranges = table[table["track"] == "range"]
    assert ranges[["lane", "depth", "name", "start_ns", "end_ns"]].values.tolist() == [
        ["main thread", 0, "step", 0, 400],
        ["main thread", 1, "forward", 10, 100],
        ["main thread", 1, "backward", 110, 300],
    ]


def test_a_launch_and_its_kernel_carry_the_path_that_was_open(tmp_path):
    with Trace(two_steps(tmp_path)) as trace:
        table = timeline([trace], "small_ctx128_train_step")
    kernels = table[table["track"] == "kernel"]
    assert kernels[["name", "path"]].values.tolist() == [
        ["gemm", "measure > step > forward"],
        ["grad", "measure > step > backward"],
    ]
    launches = table[table["track"] == "launch"]
    assert launches[["lane", "start_ns"]].values.tolist() == [["main thread", 20], ["thread 2", 200]]


def test_a_capture_without_steps_has_an_empty_timeline(tmp_path):
    path = Synthetic().range("warmup", 0, 10).kernel("gemm", at=5).write(tmp_path / "capture.sqlite")
    with Trace(path) as trace:
        pd.testing.assert_frame_equal(timeline([trace], "run"), empty_timeline())


def test_the_run_to_show_is_a_training_step_of_the_first_model_near_context_512():
    runs = [
        Run(
            {
                "model": model,
                "context_length": context,
                "mode": mode,
                "batch_size": 4,
                **DEFAULT_VALUES,
                "precision": precision,
            }
        )
        for model, context, mode, precision in (
            ("small", 128, "forward", "fp32"),
            ("small", 256, "train_step", "fp32"),
            ("small", 512, "train_step", "bf16"),
            ("large", 512, "train_step", "fp32"),
        )
    ]
    assert shown_run_name({run.name: run for run in runs}) == "small_ctx256_train_step"


def test_the_ranks_of_a_run_stand_above_each_other_on_one_clock_without_api_calls(tmp_path):
    (tmp_path / "0").mkdir(), (tmp_path / "1").mkdir()
    with (
        Trace(began(two_steps(tmp_path / "0"), 5_000)) as rank0,
        Trace(began(two_steps(tmp_path / "1"), 5_030)) as rank1,
    ):
        table = timeline([rank0, rank1], "run")
    assert set(table["track"]) == {"range", "kernel"}
    steps = table[table["name"] == "step"]
    assert steps[["lane", "start_ns", "end_ns"]].values.tolist() == [
        ["rank 0: main thread", 0, 400],
        ["rank 1: main thread", 30, 430],
    ]
    lanes = run_timeline(table, Names()).data["lanes"]
    assert lanes[0] == "rank 0: ranges, main thread" and lanes[-1].startswith("rank 1: device, stream")
    assert [lane.partition(":")[0] for lane in lanes] == sorted(lane.partition(":")[0] for lane in lanes)


def test_lanes_stand_in_the_order_of_ranks_and_threads_and_not_of_their_letters():
    lanes_by_rank = [
        (f"rank {rank}: ", thread) for rank in (2, 10) for thread in ("main thread", "thread 2", "thread 10")
    ]
    row = {
        "run": "run",
        "track": "range",
        "depth": 0,
        "name": "f",
        "start_ns": 0,
        "end_ns": 1,
        "class": "",
        "path": "f",
    }
    table = pd.DataFrame([row | {"lane": f"{rank}{thread}"} for rank, thread in reversed(lanes_by_rank)])
    lanes = run_timeline(table, Names()).data["lanes"]
    assert lanes == [f"{rank}ranges, {thread}" for rank, thread in lanes_by_rank]


def test_a_call_that_launched_many_kernels_is_one_bar(tmp_path):
    capture = Synthetic().range("measure", 0, 200).range("step", 0, 100)
    for number in range(3):
        capture.kernel("node", at=10, start=20 + 10 * number, correlation=7)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        table = timeline([trace], "run")
    assert table["track"].value_counts().to_dict() == {"kernel": 3, "range": 1, "launch": 1}


def test_a_run_on_several_gpus_is_shown_where_there_is_one():
    several = {"gpus": 2, "parallel": "ddp"}
    shape = {"model": "small", "context_length": 512, "mode": "train_step", "batch_size": 4}
    runs = [Run(shape | DEFAULT_VALUES | {"gpus": 1, "parallel": "none"}), Run(shape | DEFAULT_VALUES | several)]
    assert shown_run_name({run.name: run for run in runs}) == runs[1].name
