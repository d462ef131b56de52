"""What `record` kept of a program on an H200: a DataLoader, and forward and backward passes replayed as CUDA graphs."""

import gzip
import sqlite3
from pathlib import Path

import pytest

from kernel_tables.trace import Trace

CAPTURE = Path(__file__).parents[1] / "captures" / "loader_and_graph_2025.3.1.sqlite.gz"


@pytest.fixture(scope="module")
def tree():
    """The ranges by path."""
    with Trace(CAPTURE) as trace:
        return trace.range_tree().set_index("range")


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """By table of the capture, the nanoseconds that SQL sums, without the engine."""
    path = tmp_path_factory.mktemp("capture") / "capture.sqlite"
    path.write_bytes(gzip.decompress(CAPTURE.read_bytes()))
    with sqlite3.connect(path) as database:
        total = 'SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_{}'
        tables = ("KERNEL", "MEMCPY", "MEMSET")
        return {table: database.execute(total.format(table)).fetchone()[0] for table in tables}


def test_the_ranges_of_steps_and_modules_conserve_the_time_of_all_kernels_and_copies(tree, sums):
    outermost = tree[tree["depth"] == 0]
    assert outermost["gpu_time_ns"].sum() == sums["KERNEL"]
    assert outermost["memop_time_ns"].sum() == sums["MEMCPY"] + sums["MEMSET"]
    assert outermost["instances"].to_dict() == {"step": 3}


def test_the_kernels_of_replayed_graphs_are_told_apart_forward_and_backward(tree):
    layers, steps = 4, 3
    assert tree.loc["step > Sequential", "kernels"] == 2 * layers * steps  # a product with its bias, and a ReLU, each
    assert tree.loc["step > backward > Sequential", "kernels"] > 3 * layers * steps
    with Trace(CAPTURE) as trace:
        kernels = trace.kernels()
    assert not kernels["kernel"].str.startswith("[CUDA graph").any()
    forward = kernels[kernels["range"] == "step > Sequential"]
    assert forward.groupby("class")["launches"].sum()["gemm"] == layers * steps
