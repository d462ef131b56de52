"""The points of the roofline, held against loops over the tables."""

import pytest

from cs336_model.arithmetic.flops import forward_bytes, forward_flops
from profile_grid.questions.roofline.figure import roofline
from tests.profile_grid.made_up_grid import FOUR_WAYS, made_up_tables, rows_of, shape_of


def test_the_roofline_divides_the_flops_and_bytes_of_the_shapes_by_measured_time():
    tables = made_up_tables(**FOUR_WAYS)
    points = rows_of(roofline(tables["runs"], tables["ranges"]))
    assert {row["precision"] for row in points} == {"fp32", "bf16"}
    for row in points:
        shape = shape_of(row["model"], row["context_length"], row["batch_size"])
        times_ns = [
            r["gpu_time_ns"] for r in rows_of(tables["ranges"])
            if r["run"] == row["run"] and r["range"].split(" > ")[-1] == row["part"]
        ]  # fmt: skip
        seconds = sum(times_ns) / 3 / 1e9  # of three steps
        moved = forward_bytes(shape, 2 if row["precision"] == "bf16" else 4)[row["part"]]
        assert row["bytes_per_s"] == pytest.approx(moved / seconds)
        if row["part"] in forward_flops(shape):
            assert row["flop_per_s"] == pytest.approx(forward_flops(shape)[row["part"]] / seconds)


def test_a_model_of_other_shapes_than_its_flops_say_has_no_roofline():
    tables = made_up_tables(models=("small",), contexts=(512,), modes=("forward",))
    runs = tables["runs"].assign(forward_flops=tables["runs"]["forward_flops"] + 1)
    assert roofline(runs, tables["ranges"]).empty
