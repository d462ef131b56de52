"""What the figures draw, as numbers: each held against loops over the tables that know nothing of how it is made."""

import statistics
from collections import defaultdict

import pandas as pd
import pytest

from cs336_model.arithmetic.flops import forward_bytes, forward_flops
from profile_grid.questions.a_forward_time.launch_bound import busy_and_wall
from profile_grid.questions.a_forward_time.phase_times import DRAWN_PHASES, phase_times
from profile_grid.questions.b_top_kernels.figure import largest_runs, top_kernels
from profile_grid.questions.d_training_vs_inference.figure import family_shares, sides_of
from profile_grid.questions.e_attention.figure import attention_parts
from profile_grid.questions.roofline.figure import roofline
from profile_grid.questions.scaling.figure import laws, step_times
from profile_grid.study.dimensions import KEYS
from tests.profile_grid.made_up_grid import INCOMPLETE, OOM, made_up_tables, shape_of

TWO = {"models": ("small", "medium"), "contexts": (128, 512)}
FOUR_WAYS = {"models": ("small",), "contexts": (128, 512), "precisions": ("fp32", "bf16"), "batch_sizes": (4, 8)}


def rows_of(table) -> list[dict]:
    return table.to_dict("records")


@pytest.mark.parametrize("grid", [TWO, FOUR_WAYS], ids=["two models", "four dimensions more"])
def test_phase_times_are_those_of_the_training_steps_with_mean_and_spread(grid):
    tables = made_up_tables(**grid)
    spans, timed = defaultdict(list), {}
    for row in rows_of(tables["phases"]):
        spans[row["run"], row["phase"]].append(row["gpu_span_ns"] / 1e6)
    for row in rows_of(tables["timings"]):
        timed[row["run"], row["phase"]] = (row["mean_ms"], row["std_ms"])
    times = phase_times(tables["runs"], tables["timings"], tables["phases"])
    expected = {run for run in tables["runs"]["run"] if "train_step" in run}
    assert sorted(zip(times["run"], times["phase"], strict=True)) == sorted(
        (run, phase) for run in expected for phase in DRAWN_PHASES
    )
    for row in rows_of(times):
        place = row["run"], row["phase"]
        assert (row["mean_ms"], row["std_ms"]) == timed[place]
        assert row["profiled_ms"] == pytest.approx(statistics.mean(spans[place]))
        assert row["profiled_std_ms"] == pytest.approx(statistics.stdev(spans[place]))


def test_where_a_phase_has_no_kernels_its_profiled_time_is_the_wall_time_of_its_range():
    tables = made_up_tables(models=("small",), contexts=(512,), modes=("forward",))
    phases = tables["phases"].assign(kernels=0, wall_ns=7_000_000)
    times = phase_times(tables["runs"], tables["timings"], phases)
    assert times["profiled_ms"].tolist() == [7.0]


def test_the_busy_share_is_busy_time_over_wall_time_of_each_run():
    tables = made_up_tables(**FOUR_WAYS)
    busy = {row["run"]: row for row in rows_of(busy_and_wall(tables["runs"], tables["phases"]))}
    assert set(busy) == set(tables["runs"]["run"])
    for run, row in busy.items():
        own = [r for r in rows_of(tables["phases"]) if r["run"] == run and r["phase"] == "step"]
        assert row["wall_ms"] == pytest.approx(sum(r["wall_ns"] for r in own) / len(own) / 1e6)
        assert row["busy_share"] == pytest.approx(sum(r["gpu_busy_ns"] for r in own) / sum(r["wall_ns"] for r in own))
        assert row["kernel_us"] == pytest.approx(
            sum(r["kernel_ns"] for r in own) / sum(r["kernels"] for r in own) / 1e3
        )


def test_the_largest_run_of_each_combination_is_chosen_among_those_captured_whole():
    tables = made_up_tables(**TWO, precisions=("fp32", "bf16"), changes={"medium_ctx512_train_step": OOM})
    assert set(largest_runs(tables["runs"])["run"]) == {"medium_ctx128_train_step", "medium_ctx512_train_step_bf16"}


def test_the_top_kernels_are_those_with_the_most_time_per_step():
    tables = made_up_tables(models=("small",), contexts=(512,))
    sums = defaultdict(int)
    for row in rows_of(tables["kernels"]):
        if row["run"] == "small_ctx512_train_step":
            sums[row["kernel"]] += row["total_ns"]
    top = top_kernels(tables["runs"], tables["kernels"])
    whole = top[top["scope"] == "all phases"]
    longest = sorted(sums, key=sums.get, reverse=True)[:10]
    assert whole["kernel"].tolist() == longest
    assert whole["time_ms"].tolist() == pytest.approx([sums[kernel] / 3 / 1e6 for kernel in longest])
    assert whole["share"].tolist() == pytest.approx([sums[kernel] / sum(sums.values()) for kernel in longest])


def test_shares_of_families_are_those_of_the_kernels_and_their_bars_fill_one():
    tables = made_up_tables(**FOUR_WAYS)
    shares = family_shares(tables["runs"], tables["class_shares"])
    sums = defaultdict(lambda: defaultdict(int))
    for row in rows_of(tables["kernels"]):
        sums[row["run"]][row["class"].split("/")[0]] += row["total_ns"]
    for run, own in shares.groupby("run"):
        total = sum(sums[run].values())
        assert dict(zip(own["family"], own["share"], strict=True)) == pytest.approx(
            {family: ns / total for family, ns in sums[run].items()}
        )
        assert own["start"].iloc[0] == pytest.approx(0)
        assert own["end"].iloc[-1] == pytest.approx(1)
        assert own["start"].iloc[1:].tolist() == pytest.approx(own["end"].iloc[:-1].tolist())
    declared = set(tables["runs"]["run"][tables["runs"]["mode"] != "forward_backward"])
    assert set(shares["run"]) == declared


def test_a_side_shows_every_configuration_once_and_none_that_the_grid_does_not_have():
    both = made_up_tables(models=("small",), contexts=(128,))
    training = made_up_tables(models=("medium",), contexts=(512,), modes=("forward_backward",))
    runs = sides_of(pd.concat([both["runs"], training["runs"]]))
    assert dict(zip(runs["run"], runs["side"], strict=True)) == {
        "small_ctx128_forward": "inference",
        "small_ctx128_train_step": "training",
        "medium_ctx512_forward_backward": "training",
    }


def test_the_parts_of_attention_have_the_time_of_their_ranges_per_layer():
    tables = made_up_tables(**FOUR_WAYS)
    parts = attention_parts(tables["runs"], tables["attention"])
    assert set(parts["run"]) == {run for run in tables["runs"]["run"] if "_forward" in run and "backward" not in run}
    for row in rows_of(parts):
        own = [
            r["gpu_time_ns"] for r in rows_of(tables["ranges"])
            if r["run"] == row["run"] and r["range"].endswith(f" > {row['part']}")
        ]  # fmt: skip
        assert row["gpu_time_per_layer_us"] == pytest.approx(sum(own) / len(own) / 12 / 1e3)


def test_the_fitted_exponent_is_that_of_a_power_law_between_points_that_differ_in_one_dimension():
    tables = made_up_tables(**TWO, precisions=("fp32", "bf16"))
    times = step_times(tables["runs"], tables["timings"])
    scale = times["precision"].map({"fp32": 3.0, "bf16": 1.0})
    times = times.assign(mean_ms=scale * times["context_length"] ** 1.5 * times["parameters"] ** 0.8)
    by_context = laws(times, "context_length", "context_length")
    assert len(by_context) == 2 * 3 * 2
    for points, law in by_context:
        assert [points[key].nunique() for key in KEYS if key != "context_length"] == [1] * (len(KEYS) - 1)
        assert law.exponent == pytest.approx(1.5)
    assert [law.exponent for _, law in laws(times, "parameters", "model")] == pytest.approx([0.8] * 12)


def test_the_roofline_divides_the_flops_and_bytes_of_the_shapes_by_measured_time():
    tables = made_up_tables(**FOUR_WAYS)
    points = rows_of(roofline(tables["runs"], tables["ranges"]))
    assert {row["precision"] for row in points} == {"fp32", "bf16"}
    for row in points:
        shape = shape_of(row["model"], row["context_length"], row["batch_size"])
        in_part = [
            r["gpu_time_ns"] for r in rows_of(tables["ranges"])
            if r["run"] == row["run"] and r["range"].split(" > ")[-1] == row["part"]
        ]  # fmt: skip
        seconds = sum(in_part) / 3 / 1e9
        moved = forward_bytes(shape, 2 if row["precision"] == "bf16" else 4)[row["part"]]
        assert row["bytes_per_s"] == pytest.approx(moved / seconds)
        if row["part"] in forward_flops(shape):
            assert row["flop_per_s"] == pytest.approx(forward_flops(shape)[row["part"]] / seconds)


def test_a_model_of_other_shapes_than_its_flops_say_has_no_roofline():
    tables = made_up_tables(models=("small",), contexts=(512,), modes=("forward",))
    runs = tables["runs"].assign(forward_flops=tables["runs"]["forward_flops"] + 1)
    assert roofline(runs, tables["ranges"]).empty


def test_runs_without_kernels_are_in_no_row_that_needs_kernels():
    tables = made_up_tables(
        models=("small",), contexts=(128, 512), modes=("forward",), changes={"small_ctx512_forward": INCOMPLETE}
    )
    for rows in (
        busy_and_wall(tables["runs"], tables["phases"]),
        family_shares(tables["runs"], tables["class_shares"]),
        attention_parts(tables["runs"], tables["attention"]),
        roofline(tables["runs"], tables["ranges"]),
        top_kernels(tables["runs"], tables["kernels"]),
    ):
        assert set(rows["run"]) == {"small_ctx128_forward"}
