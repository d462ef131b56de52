"""The tables of (a) to (e): sums that one can do in the head, and what is missing stays missing."""

from pathlib import Path

import pandas as pd
import pytest

from tests.workflow.small_tables import BIG_GEMM, make_run, make_tables, write_tables
from workflow.scripts import summaries

NAMES = ["forward_time", "top_kernels", "forward_parts", "class_shares", "training_parts", "attention"]
NAMES += ["attention_backward"]


def summarize(folder: Path, *runs: dict) -> dict[str, pd.DataFrame]:
    summaries.main(write_tables(folder, *runs), [str(folder / f"{name}.parquet") for name in NAMES])
    return {name: pd.read_parquet(folder / f"{name}.parquet") for name in NAMES}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, pd.DataFrame]:
    """Of a forward pass and a training step of one model."""
    runs = make_run("forward"), make_run("train", mode="train_step")
    return summarize(tmp_path_factory.mktemp("made"), *runs)


def test_a_range_of_a_library_belongs_to_the_part_around_it(made):
    parts = made["training_parts"].set_index(["run", "pass", "part"])["gpu_time_ms"]
    assert parts["train", "backward", "computing softmax"] == pytest.approx(0.5005)
    assert "forward" not in made["training_parts"]["run"].to_list()  # it has no backward pass


def test_a_step_without_a_kernel_counts_as_zero(tmp_path):
    run = make_run("forward", steps=2)
    run["kernels"] = [row for row in run["kernels"] if row["kernel"] != BIG_GEMM or row["step"] == 0]
    row = summarize(tmp_path, run)["class_shares"].query("`class` == 'gemm/cutlass' and phase == 'forward'").iloc[0]
    assert row["gpu_time_ms"] == pytest.approx(0.25) and row["invocations"] == 1
    assert row["gpu_time_std_ms"] == pytest.approx(0.5 / 2**0.5)


def test_a_grid_without_any_complete_run_has_tables_without_rows(tmp_path):
    failed = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    tables = summarize(tmp_path, make_run("forward", **failed))
    assert len(tables["forward_time"]) == 1 and tables["forward_time"]["idle_share"].isna().all()
    assert [len(tables[name]) for name in NAMES[1:]] == [0] * 6


WARM_UP = [  # ms of the warm-up steps, beside measured ones of 4 ms; the number of them that is needed
    ([12.0, 4.1, 4.0], 1), ([4.1, 4.0, 4.0], 0), ([4.0, 12.0, 4.0], 2), ([12.0, 4.0, 5.0], None),
]  # fmt: skip


@pytest.mark.parametrize(("ms", "enough"), WARM_UP)
def test_warm_up_steps_are_enough_after_which_all_take_what_the_measured_ones_take(ms, enough):
    tables = make_tables(make_run("forward"))
    warm = [{"run": "forward", "phase": "step", "step": step, "ms": one} for step, one in enumerate(ms)]
    row = summaries.summarize_forward(*(tables[name] for name in ("runs", "timings", "phases")), pd.DataFrame(warm))
    assert row["first_step_ratio"][0] == ms[0] / 4 and row["warmup_enough"].isna()[0] == (enough is None)
    assert enough is None or row["warmup_enough"][0] == enough
