"""The rows of the figure of (b), held against loops over the tables."""

from collections import defaultdict

import pytest

from profile_grid.questions.b_top_kernels.figure import FIGURES, drawn_kernels, largest_runs
from tests.profile_grid.made_up_grid import OOM, TWO_MODELS, made_up_tables, rows_of


def test_the_largest_run_of_each_combination_is_chosen_among_those_captured_whole():
    tables = made_up_tables(**TWO_MODELS, precisions=("fp32", "bf16"), changes={"medium_ctx512_train_step": OOM})
    assert set(largest_runs(tables["runs"])["run"]) == {"medium_ctx128_train_step", "medium_ctx512_train_step_bf16"}


def test_the_top_kernels_are_those_with_the_most_time_per_step():
    tables = made_up_tables(models=("small",), contexts=(512,))
    sums = defaultdict(int)
    for row in rows_of(tables["kernels"]):
        if row["run"] == "small_ctx512_train_step":
            sums[row["kernel"]] += row["total_ns"]
    drawn = drawn_kernels(tables["runs"], tables["kernels"])
    whole = drawn[drawn["scope"] == "all phases"]
    longest = sorted(sums, key=sums.get, reverse=True)[:10]
    assert whole["kernel"].tolist() == longest
    assert whole["time_ms"].tolist() == pytest.approx([sums[kernel] / 3 / 1e6 for kernel in longest])
    assert whole["share"].tolist() == pytest.approx([sums[kernel] / sum(sums.values()) for kernel in longest])


def test_on_a_processor_the_figure_is_of_operators():
    tables = made_up_tables(models=("small",), contexts=(512,))
    (figure,) = FIGURES
    on_cpu = tables | {"runs": tables["runs"].assign(device="cpu")}
    assert figure.draw(on_cpu).title == "The operators with the most time"
    assert figure.draw(tables).title == figure.title == "The kernels with the most time"
