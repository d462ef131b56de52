"""Which ranges the activities of replayed CUDA graphs belong to, in made-up captures and a real one."""

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from kernel_tables.kernel_names.parts import split_function_name
from kernel_tables.trace import Trace
from kernel_tables.views.timeline import timeline_rows
from tests.kernel_tables import brute_force
from tests.kernel_tables.synthetic import Synthetic

CAPTURES = Path(__file__).parents[1] / "captures"
GRAPH_LAUNCH = "cudaGraphLaunch_v10000"


@pytest.fixture
def paths(tmp_path):
    """A function: the range path of each activity of a capture, joined with `/`, in the order of the tables."""

    def paths_of(capture: Synthetic) -> list[str]:
        path = capture.write(tmp_path / "capture.sqlite")
        with Trace(path) as trace:
            found = [trace.paths[path_id] for path_id in trace.activities()["path_id"]]
        assert found == brute_force.paths(path)
        return ["/".join(names) for names in found]

    return paths_of


def replay(capture: Synthetic, at: int, *nodes: int) -> Synthetic:
    """A launch of a graph that runs these nodes."""
    capture.call(at, 1000 + at, api=GRAPH_LAUNCH, duration=4)
    for place, node in enumerate(nodes):
        capture.kernel("k", at, start=at + 10 * place, correlation=1000 + at, node=node)
    return capture


def captured_step() -> Synthetic:
    """A forward pass of two modules and a backward pass on a second thread, captured from 10 to 90 without ranges."""
    capture = Synthetic().stream_capture(10, 90).range("forward", 12, 40).range("norm", 14, 20).range("mlp", 22, 38)
    capture.range("backward", 50, 80).range("MulBackward", 60, 70, thread=2)
    return capture.node(1, 16).node(2, 24).node(3, 65, thread=2).node(4, 75, thread=2).node(5, 85)


def test_a_replayed_kernel_is_in_the_ranges_of_its_node_below_those_of_the_launch(paths):
    capture = captured_step().range("measured", 100, 300)
    inside = ["forward/norm", "forward/mlp", "backward/MulBackward", "backward"]
    assert paths(replay(capture, 110, 1, 2, 3, 4, 5)) == [*(f"measured/{path}" for path in inside), "measured"]


def test_the_node_of_an_executable_graph_is_a_clone_of_the_captured_one(paths):
    capture = captured_step().node(11, 95).node(11, 95, original=1).node(21, 96, original=11)
    assert paths(replay(capture, 110, 11, 21)) == ["forward/norm", "forward/norm"]


def test_memory_operations_of_a_replay_are_in_the_ranges_of_their_nodes_too(paths):
    capture = captured_step().memset(110, node=2).memcpy(110, node=1)
    assert paths(capture) == ["forward/norm", "forward/mlp"]


def test_ranges_around_the_capture_are_left_out_up_to_the_innermost_that_is_open_at_the_launch(paths):
    capture = captured_step().range("warmup", 0, 99).range("step", 5, 98)
    capture.range("measure", 100, 300).range("step", 105, 200).range("elsewhere", 210, 300)
    replay(replay(capture, 110, 2), 220, 2)
    assert paths(capture) == ["measure/step/forward/mlp", "measure/elsewhere/warmup/step/forward/mlp"]


def test_a_range_that_is_open_at_the_capture_and_at_the_launch_counts_once(paths):
    assert paths(replay(captured_step().range("train", 0, 300), 110, 1)) == ["train/forward/norm"]


def test_a_module_that_launches_its_own_graph_counts_once(paths):
    assert paths(replay(captured_step().range("forward", 100, 200), 110, 1)) == ["forward/norm"]
    assert paths(replay(captured_step().range("norm", 100, 200), 110, 1)) == ["norm/forward/norm"]


def test_ranges_that_a_capture_repeats_in_their_order_count_once(paths):
    """As torch.cuda.make_graphed_callables captures a model, outside of any step."""
    capture = captured_step().range("step", 100, 300).range("forward", 105, 290).range("norm", 106, 280)
    assert paths(replay(capture, 110, 1, 2, 4)) == [f"step/forward/norm{rest}" for rest in ("", "/mlp", "/backward")]
    capture = captured_step().range("forward", 100, 300).range("step", 101, 290).range("forward", 105, 280)
    assert paths(replay(capture, 110, 1)) == ["forward/step/forward/norm"]


def test_ranges_around_nodes_that_were_added_by_hand_are_those_at_the_first_node(paths):
    capture = Synthetic().range("step", 0, 50).range("build", 5, 40).node(1, 10).node(2, 45).range("step", 60, 90)
    assert paths(replay(capture, 70, 1, 2)) == ["step/build", "step"]


def test_nodes_of_another_process_are_other_nodes(paths):
    capture = captured_step().range("other", 0, 50, process=2).node(1, 10, process=2)
    assert paths(replay(capture, 110, 1)) == ["forward/norm"]


def test_the_call_in_a_timeline_is_in_the_ranges_of_the_launch_alone(tmp_path):
    with Trace(replay(captured_step().range("step", 100, 200), 110, 1).write(tmp_path / "capture.sqlite")) as trace:
        rows = timeline_rows(trace, np.array([], np.int64), np.array([0]))
        names = [trace.paths[path] for path in rows["path_id"]]
    assert dict(zip(rows["track"], names, strict=True)) == {"launch": ("step",), "kernel": ("step", "forward", "norm")}


def test_clones_of_each_other_are_of_no_captured_node(tmp_path):
    capture = Synthetic().range("step", 100, 200).node(1, 10, original=2).node(2, 20, original=1)
    with Trace(replay(capture, 110, 1, 2).write(tmp_path / "capture.sqlite")) as trace:
        assert trace.ranges().set_index("range").loc["step", "kernels"] == 2


def test_a_node_that_was_not_recorded_is_in_the_ranges_of_the_launch_and_check_says_so(paths, tmp_path):
    capture = Synthetic().range("step", 100, 200).kernel("k", 105)
    assert paths(replay(capture, 110, 7)) == ["step", "step"]
    with Trace(tmp_path / "capture.sqlite") as trace:
        (finding,) = trace.check()
    assert finding.code == "nodes_not_recorded" and "1 activities" in finding.message
    assert "--cuda-graph-trace=node" in finding.message
    before = Synthetic().range("step", 100, 200).node(7, -5).node(8, 90, original=7)
    assert paths(replay(before, 110, 8)) == ["step"]
    known = captured_step().range("step", 100, 200).node(11, 95, original=1).node(12, 95, original=99)
    with Trace(replay(known, 110, 11, 12).write(tmp_path / "known.sqlite")) as trace:
        assert ["1 activities" in finding.message for finding in trace.check()] == [True]


@pytest.mark.parametrize("column", ["start", "globalTid", "graphNodeId", "originalGraphNodeId"])
def test_without_a_column_of_the_creations_replayed_kernels_are_in_the_ranges_of_the_launch(column, tmp_path):
    capture = replay(captured_step().range("step", 100, 200), 110, 1)
    path = capture.write(tmp_path / "capture.sqlite", lacking=(f"CUDA_GRAPH_NODE_EVENTS.{column}",))
    with Trace(path) as trace:
        assert trace.kernels()["range"].tolist() == ["step"]
        assert [finding.code for finding in trace.check()] == ["nodes_not_recorded"]


def test_a_graph_that_was_recorded_as_one_activity_is_said_to_be_and_how_to_have_its_kernels(tmp_path):
    capture = Synthetic().range("step", 0, 100).graph(4, at=10).graph(4, at=30).kernel("k", at=50)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        (finding,) = trace.check()
        assert trace.ranges()["gpu_time_ns"].tolist() == [30]
    assert finding.code == "graphs_as_one" and finding.message.startswith("2 replays")
    assert "--cuda-graph-trace=node" in finding.message


def test_a_captured_range_is_opened_once_in_every_replay_and_the_steps_are_those_of_the_launches(tmp_path):
    capture = captured_step().range("step", 100, 140).range("step", 150, 250)
    for at in (110, 160, 200):
        replay(capture, at, 1, 2)
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        assert trace.enclosing("step").tolist() == [5, 5, 6, 6, 6, 6]
        assert trace.enclosing("forward").tolist() == [-1] * 6
        ranges = trace.ranges("step").set_index("range")["instances"].to_dict()
        tree = trace.range_tree("step").set_index("range")["instances"].to_dict()
        assert trace.ranges().set_index("range")["instances"]["forward"] == 1 + 3
    assert ranges == {"step": 2, "forward": 3, "norm": 3, "mlp": 3}
    assert tree == {"step": 2, "step > forward": 3, "step > forward > norm": 3, "step > forward > mlp": 3}


@pytest.fixture(scope="module")
def replayed_and_eager(tmp_path_factory) -> list[Path]:
    """Five steps of a small GPT, replayed as one graph, and run eagerly; see tests/captures/README.md."""
    unpacked = []
    for name in ("graph_replayed", "graph_eager_twin"):
        unpacked.append(tmp_path_factory.mktemp(name) / "capture.sqlite")
        with gzip.open(CAPTURES / f"{name}_2025.3.2.sqlite.gz") as packed, unpacked[-1].open("wb") as file:
            shutil.copyfileobj(packed, file)
    return unpacked


def test_a_replayed_training_step_has_the_kernels_of_its_eager_twin_by_path(replayed_and_eager):
    counts = []
    for path in replayed_and_eager:
        with Trace(path) as trace:
            assert trace.check() == []
            table = trace.kernels("measured")
            tree = trace.range_tree("measured").set_index("range")[["instances", "kernels", "memops"]]
            kernels = table[~table["class"].isin(("memcpy", "memset"))]
            short = kernels.assign(kernel=kernels["kernel"].map(lambda name: split_function_name(name).identifier))
            pairs = short.groupby(["range", "kernel"])["launches"].sum()
            assert len(pairs) == 80 and pairs.sum() == 1505
            phases = {name: int(tree["kernels"][f"measured > {name}"]) for name in ("forward", "backward", "optimizer")}
            assert phases == {"forward": 440, "backward": 1045, "optimizer": 15}
            counts.append((table.set_index(["range", "kernel"])["launches"].to_dict(), tree.to_dict("index")))
    assert counts[0] == counts[1]


def test_no_launch_and_no_nanosecond_of_a_replay_is_lost(replayed_and_eager):
    path = replayed_and_eager[0]
    with Trace(path) as trace:
        found = [trace.paths[path_id] for path_id in trace.activities()["path_id"]]
        kernels, total = trace.kernels(), trace.ranges().set_index("range").loc["measured"]
    assert found == brute_force.paths(path)
    rows = "UNION ALL ".join(
        f'SELECT "end" - start AS ns, graphNodeId AS node FROM CUPTI_ACTIVITY_KIND_{table} '
        for table in ("KERNEL", "MEMCPY", "MEMSET")
    )
    with closing(sqlite3.connect(path)) as database:
        everything = database.execute(f"SELECT count(*), sum(ns) FROM ({rows})").fetchone()
        replayed = database.execute(f"SELECT count(*), sum(ns) FROM ({rows}) WHERE node IS NOT NULL").fetchone()
    assert (kernels["launches"].sum(), kernels["total_ns"].sum()) == everything
    assert (total["kernels"] + total["memops"], total["gpu_time_ns"] + total["memop_time_ns"]) == replayed
