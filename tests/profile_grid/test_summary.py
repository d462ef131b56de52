from dataclasses import replace

import pandas as pd
import pytest

from profile_grid.documents.summaries import summary_tables
from profile_grid.tables.conservation import NotConserved
from tests.profile_grid.made_up import (
    GEMM,
    H200,
    MUL,
    SDPA,
    SOFTMAX,
    Kernel,
    Made,
    forward_kernels,
    grid,
    merged,
    training_kernels,
)


def summaries(*runs: Made) -> dict[str, pd.DataFrame]:
    return summary_tables(merged(list(runs)))


def rows(table: pd.DataFrame, *columns: str) -> list[tuple]:
    return list(table[list(columns)].itertuples(index=False, name=None))


def test_forward_time_sets_nvtx_gpu_and_python_side_by_side():
    kernels = (Kernel("forward", "", GEMM, "gemm", 100, 8000.0),)
    run = Made(kernels=kernels, step_wall_ms=10.0, unprofiled_ms=8.0, unprofiled_std_ms=0.4, steps=1)
    row = summaries(run)["forward_time"].iloc[0]
    assert row["step_wall_ms"] == 10.0
    assert row["forward_wall_ms"] == 5.0  # half of the step, the other half is `synchronize`
    assert row["forward_gpu_span_ms"] == row["forward_gpu_busy_ms"] == 8.0
    assert (row["forward_kernels"], row["mean_kernel_us"]) == (100, 80.0)
    assert row["idle_share"] == pytest.approx(0.2)
    assert row["overhead_ratio"] == 1.25
    assert not row["matches_python"]
    assert pd.isna(row["step_wall_std_ms"])  # one step has no spread


def test_the_spread_of_the_ratio_comes_from_both_spreads():
    run = Made(kernels=forward_kernels(), step_wall_ms=12.0, unprofiled_ms=10.0, unprofiled_std_ms=0.5)
    row = summaries(run)["forward_time"].iloc[0]
    assert row["overhead_ratio_std"] == pytest.approx(1.2 * 0.05, rel=1e-3)


@pytest.mark.parametrize(("wall_ms", "matches"), [(10.4, True), (10.6, False), (9.6, True), (9.4, False)])
def test_a_step_matches_python_within_five_percent_and_not_beyond(wall_ms, matches):
    run = Made(kernels=(), steps=1, step_wall_ms=wall_ms, unprofiled_ms=10.0)
    assert bool(summaries(run)["forward_time"]["matches_python"].iloc[0]) is matches


def test_without_kernels_the_wall_times_stay_and_the_gpu_figures_are_missing_not_zero():
    row = summaries(Made(kernels=(), step_wall_ms=12.0))["forward_time"].iloc[0]
    assert row["step_wall_ms"] == pytest.approx(12.0, rel=1e-3)
    assert row[["forward_gpu_span_ms", "forward_gpu_busy_ms", "forward_kernels", "idle_share"]].isna().all()


def test_a_run_out_of_memory_has_a_row_with_statuses_and_no_figures():
    status = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    row = summaries(Made(kernels=forward_kernels(), **status), Made(mode="train_step"))["forward_time"].iloc[0]
    assert row["timing_status"] == "out_of_memory"
    assert row[["unprofiled_step_ms", "step_wall_ms", "forward_gpu_busy_ms", "overhead_ratio"]].isna().all()


def test_top_kernels_are_counted_per_single_pass():
    kernels = (Kernel("forward", "", GEMM, "gemm", 61, 3000.0), Kernel("forward", "", MUL, "elementwise", 24, 1000.0))
    table = summaries(Made(kernels=kernels, steps=15))["top_kernels"]
    forward = table[table["scope"] == "forward"]
    assert rows(forward, "rank", "kernel", "class", "gpu_time_ms", "invocations", "same_in_every_step", "share") == [
        (1, GEMM, "gemm", 3.0, 61.0, True, 0.75),
        (2, MUL, "elementwise", 1.0, 24.0, True, 0.25),
    ]


def test_a_kernel_that_one_step_lacks_is_averaged_over_all_steps_and_said_to_differ():
    tables = merged([Made(kernels=(Kernel("forward", "", GEMM, "gemm", 10, 900.0),), steps=3)])
    for name, column in (("kernels", "total_ns"), ("phases", "kernel_ns")):
        tables[name].loc[tables[name]["step"] == 2, column] = 0
    tables["kernels"] = tables["kernels"][tables["kernels"]["step"] < 2]
    top = summary_tables(tables)["top_kernels"].iloc[0]
    assert top["gpu_time_ms"] == pytest.approx(0.6)
    assert top["invocations"] == pytest.approx(20 / 3)
    assert not top["same_in_every_step"]
    assert top["gpu_time_std_ms"] == pytest.approx(pd.Series([0.9, 0.9, 0.0]).std())


def test_the_top_kernel_of_training_is_compared_with_that_of_the_inference_run():
    inference = Made(kernels=forward_kernels())
    same = Made(mode="forward_backward", kernels=forward_kernels() + training_kernels("forward_backward"))
    other = Made(
        mode="train_step",
        kernels=forward_kernels() + training_kernels("train_step", matmul_us=10, elementwise_us=90000),
    )
    table = summaries(inference, same, other)["top_kernels"]
    compared = table[(table["scope"] == "all phases") & (table["rank"] == 1) & (table["mode"] != "forward")]
    assert rows(compared, "mode", "kernel", "same_as_forward") == [
        ("forward_backward", GEMM, True),
        ("train_step", MUL, False),
    ]


def test_forward_classes_sum_to_one_and_memory_operations_are_a_class_of_their_own():
    table = summaries(Made(kernels=forward_kernels(8000.0, 900.0)))["forward_classes"]
    assert rows(table, "class", "gpu_time_ms", "invocations") == [
        ("gemm", 8.0, 84.0),
        ("softmax", 0.9, 12.0),
        ("elementwise", 0.6, 24.0),
        ("reduction", 0.3, 24.0),
        ("memcpy", 0.002, 1.0),
    ]
    assert table["share"].sum() == pytest.approx(1.0)


def test_a_part_of_the_model_is_the_innermost_range_and_its_matrix_multiplies_are_apart():
    kernels = (
        Kernel("forward", "block > attention", GEMM, "gemm", 1, 600.0),
        Kernel("forward", "block > attention", MUL, "elementwise", 1, 300.0),
        Kernel("forward", "", MUL, "elementwise", 1, 100.0),
    )
    table = summaries(Made(kernels=kernels))["forward_parts"]
    assert rows(table, "part", "gpu_time_ms", "share", "other_share", "share_of_others") == [
        ("attention", 0.9, 0.9, 0.3, 0.75),
        ("(no inner range)", 0.1, 0.1, 0.1, 0.25),
    ]


def test_class_shares_sum_to_one_in_every_phase_and_over_all_phases():
    table = summaries(*grid())["class_shares"]
    assert table.groupby(["run", "phase"])["share"].sum().round(12).eq(1.0).all()
    steps = table[table["phase"] != "all phases"].groupby("run")["share_of_step"].sum()
    assert steps.round(12).eq(1.0).all()


def test_attention_has_time_per_layer_and_exact_flops():
    softmax = f"{SDPA} > computing softmax"
    kernels = (
        Kernel("forward", f"{SDPA} > computing attention scores", GEMM, "gemm", 12, 1200.0),
        Kernel("forward", softmax, SOFTMAX, "softmax", 12, 1800.0),
        Kernel("forward", f"{SDPA} > final matmul", GEMM, "gemm", 12, 600.0),
    )
    table = summaries(Made(kernels=kernels))["attention"].set_index("part")
    assert table["flops_per_layer"].to_dict() == {
        "computing attention scores": 1_610_612_736,
        "computing softmax": 62_914_560,
        "final matmul": 1_610_612_736,
        "scaled dot product attention": 2 * 1_610_612_736 + 6 * 4 * 12 * 512**2,
    }
    assert table["gpu_time_per_layer_us"].to_dict() == pytest.approx(
        {
            "computing attention scores": 100.0,
            "computing softmax": 150.0,
            "final matmul": 50.0,
            "scaled dot product attention": 300.0,
        }
    )
    assert table.loc["computing softmax", "runtime_to_matmuls"] == pytest.approx(1.0)
    assert table.loc["computing softmax", "flops_to_matmuls"] == pytest.approx(5 / (4 * 64))
    assert table.loc["final matmul", "flop_per_s"] == pytest.approx(1_610_612_736 / 50e-6)


def test_kernels_that_do_not_add_up_to_their_phase_are_an_error_that_names_it():
    tables = merged([Made(kernels=forward_kernels())])
    tables["kernels"] = tables["kernels"].iloc[1:]
    with pytest.raises(NotConserved, match="small_ctx512_forward, 0, forward: kernel_ns of the phase is 9800000 ns"):
        summary_tables(tables)


def test_phases_that_do_not_add_up_to_their_step_are_an_error():
    tables = merged([Made(kernels=forward_kernels())])
    tables["phases"].loc[tables["phases"]["phase"] == "step", "kernel_ns"] += 1
    with pytest.raises(NotConserved, match="kernel_ns of the step is 9800001 ns, its parts sum to 9800000 ns"):
        summary_tables(tables)


def test_kernels_outside_the_measured_steps_are_no_part_of_a_pass():
    tables = merged([Made(kernels=(Kernel("forward", "", GEMM, "gemm", 1, 100.0),), steps=1)])
    tables["kernels"] = pd.concat([tables["kernels"], tables["kernels"].assign(step=-1, phase="(outside)")])
    assert summary_tables(tables)["class_shares"]["gpu_time_ms"].tolist() == [0.1, 0.1]


def test_a_grid_without_any_kernel_has_empty_tables_with_all_their_columns():
    whole, bare = summaries(*grid()), summaries(*[replace(run, kernels=()) for run in grid()])
    for name in ("top_kernels", "forward_classes", "forward_parts", "class_shares", "attention"):
        assert bare[name].empty
        assert list(bare[name].columns) == list(whole[name].columns)


def test_runs_stand_in_the_order_of_the_grid():
    runs = [Made(model=model, machine=H200, kernels=forward_kernels()) for model in ("small", "2.7B", "large")]
    for table in summaries(*runs).values():
        assert list(dict.fromkeys(table["model"])) == ["small", "2.7B", "large"]
