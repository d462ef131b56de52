"""The rows of the figure of (e), held against loops over the tables."""

import pytest

from profile_grid.questions.e_attention.figure import attention_parts
from tests.profile_grid.made_up_grid import FOUR_WAYS, made_up_tables, rows_of


def test_the_parts_of_attention_have_the_time_of_their_ranges_per_layer():
    tables = made_up_tables(**FOUR_WAYS)
    parts = attention_parts(tables["runs"], tables["attention"])
    assert set(parts["run"]) == {run for run in tables["runs"]["run"] if "_forward" in run and "backward" not in run}
    for row in rows_of(parts):
        step_ns = [
            times["gpu_time_ns"] for times in rows_of(tables["ranges"])
            if times["run"] == row["run"] and times["range"].endswith(f" > {row['part']}")
        ]  # fmt: skip
        assert row["gpu_time_per_layer_us"] == pytest.approx(sum(step_ns) / len(step_ns) / 12 / 1e3)
