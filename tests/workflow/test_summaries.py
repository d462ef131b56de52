"""The tables of (a) to (e): sums that one can do in the head, and what is missing stays missing."""

from pathlib import Path

import pandas as pd
import pytest

from tests.workflow.small_tables import BIG_GEMM, make_run, write_tables
from workflow.scripts import summaries

NAMES = [
    "forward_time", "top_kernels", "forward_classes", "forward_parts", "class_shares", "training_parts", "attention",
    "attention_backward",
]  # fmt: skip


def summarize(folder: Path, *runs: dict) -> dict[str, pd.DataFrame]:
    summaries.main(write_tables(folder, *runs), [str(folder / f"{name}.parquet") for name in NAMES])
    return {name: pd.read_parquet(folder / f"{name}.parquet") for name in NAMES}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> dict[str, pd.DataFrame]:
    """Of a forward pass and a training step of one model."""
    runs = make_run("forward"), make_run("train", mode="train_step")
    return summarize(tmp_path_factory.mktemp("made"), *runs)


def test_a_forward_pass_has_its_times_on_the_host_and_on_the_gpu(made):
    row = made["forward_time"].set_index("run").loc["forward"]
    assert row["forward_gpu_busy_ms"] == pytest.approx(1.001) and row["forward_gpu_busy_std_ms"] == pytest.approx(0.001)
    assert row["forward_wall_ms"] == pytest.approx(2.002) and row["idle_share"] == pytest.approx(0.5)
    assert row["forward_kernels"] == 10 and row["launch_us"] == pytest.approx(200.2) and row["launch_bound"]
    assert row["overhead_ratio"] == pytest.approx(0.5005) and not row["matches_python"] and row["steps_captured"] == 3


def test_kernels_are_ranked_in_three_scopes_with_the_part_that_needs_them(made):
    top = made["top_kernels"].query("run == 'train'").set_index(["scope", "rank"])
    assert top["kernel"]["all phases", 1] == BIG_GEMM and top["gpu_time_ms"]["all phases", 1] == pytest.approx(1.5015)
    assert top["share"]["forward", 1] == pytest.approx(0.5) and top["part"]["forward", 1] == "feed-forward"
    assert top["kernel"]["forward without matrix multiplies", 1].startswith("exp")
    assert top["share"]["forward without matrix multiplies", 1] == pytest.approx(0.1)
    assert top["same_as_forward"]["all phases", 1] and pd.isna(top["same_as_forward"]["forward", 1])
    forward = made["top_kernels"].query("run == 'forward' and scope == 'forward' and rank == 2").iloc[0]
    assert forward["part_share"] == pytest.approx(0.75) and forward["invocations"] == 4  # of sgemm's two parts


def test_shares_add_up_to_one(made):
    wholes = {"forward_classes": [], "forward_parts": [], "class_shares": ["phase"], "training_parts": ["pass"]}
    for name, whole in wholes.items():
        assert (made[name].groupby(["run", *whole])["share"].sum() - 1).abs().max() < 1e-9


def test_a_part_is_shared_with_and_without_its_matrix_multiplies(made):
    parts = made["forward_parts"].query("run == 'forward'").set_index("part")
    assert parts["share"]["feed-forward"] == pytest.approx(0.5) and parts["other_share"]["feed-forward"] == 0
    assert parts["other_share"]["computing softmax"] == pytest.approx(0.1)
    assert parts["share_of_others"]["computing softmax"] == 1


def test_a_range_of_a_library_belongs_to_the_part_around_it(made):
    parts = made["training_parts"].set_index(["run", "pass", "part"])["gpu_time_ms"]
    assert parts["train", "backward", "computing softmax"] == pytest.approx(0.5005)
    assert "forward" not in made["training_parts"]["run"].to_list()  # it has no backward pass


def test_softmax_is_compared_with_both_matrix_multiplies(made):
    row = made["attention"].query("run == 'forward' and part == 'computing softmax'").iloc[0]
    assert row["runtime_to_matmuls"] == pytest.approx(0.25) and row["gpu_time_per_layer_us"] == pytest.approx(50.05)
    scores = 4 * 2 * 128**2
    assert row["flops_per_layer"] == 5 * scores and row["flops_to_matmuls"] == pytest.approx(5 / (4 * 32))
    assert row["kernels_per_layer"] == 2 and row["instances_per_pass"] == 2
    assert list(made["attention_backward"]["part"]) == ["computing softmax", "scaled dot product attention"]


def test_a_step_without_a_kernel_counts_as_zero(tmp_path):
    run = make_run("forward", steps=2)
    run["kernels"] = [row for row in run["kernels"] if row["kernel"] != BIG_GEMM or row["step"] == 0]
    row = summarize(tmp_path, run)["forward_classes"].query("`class` == 'gemm/cutlass'").iloc[0]
    assert row["gpu_time_ms"] == pytest.approx(0.25) and row["invocations"] == 1 and not row["same_in_every_step"]
    assert row["gpu_time_std_ms"] == pytest.approx(0.5 / 2**0.5)


def test_a_grid_without_any_complete_run_has_tables_without_rows(tmp_path):
    failed = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    tables = summarize(tmp_path, make_run("forward", **failed))
    assert len(tables["forward_time"]) == 1 and tables["forward_time"]["idle_share"].isna().all()
    assert [len(tables[name]) for name in NAMES[1:]] == [0] * 7
