"""All-reduce alone: what two processes measure, and the bandwidths that follow."""

import pytest

from profile_grid.measuring.all_reduce import COLUMNS, all_reduced, rows, specification
from profile_grid.measuring.job import Job
from profile_grid.measuring.lease_server import Leases


def rank(*seconds):
    return {"sizes": [{"bytes": 3 * 10**9, "seconds": list(seconds)}], "machine": {"device_name": "NVIDIA H200"}}


def test_bandwidths_are_of_the_slowest_rank_and_the_bus_carries_each_byte_twice_but_once():
    (row,) = rows([rank(1.0, 2.0), rank(1.5, 1.0), rank(1.0, 1.0)])
    assert list(row) == list(COLUMNS)
    assert (row["gpus"], row["repeats"], row["mean_ms"]) == (3, 2, 1750.0)
    assert row["std_ms"] == pytest.approx(353.55, abs=0.01)
    assert row["algorithm_gb_per_s"] == pytest.approx(3 / 1.75)
    assert row["bus_gb_per_s"] == pytest.approx(3 / 1.75 * 4 / 3)


def test_two_processes_reduce_a_megabyte(tmp_path):
    told = specification("cpu", 2, [10**6], warmup=1, repeats=3)
    (row,) = rows(all_reduced(Job(told, tmp_path, tmp_path, tmp_path / "log", 100.0, Leases())))
    assert (row["gpus"], row["bytes"], row["repeats"]) == (2, 10**6, 3)
    assert row["bus_gb_per_s"] == row["algorithm_gb_per_s"] > 0
