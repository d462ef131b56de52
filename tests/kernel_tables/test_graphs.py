"""Which ranges the activities of replayed CUDA graphs belong to, case by case."""

import pytest

import kernel_tables
from tests.kernel_tables.synthetic import Synthetic


def captured_step() -> Synthetic:
    """A forward pass of two modules and a backward pass on a second thread, captured from 10 to 90 without ranges."""
    capture = Synthetic().stream_capture(10, 90).range("forward", 12, 40).range("norm", 14, 20).range("mlp", 22, 38)
    capture.range("backward", 50, 80).range("MulBackward", 60, 70, thread=2)
    return capture.node(1, 16).node(2, 24).node(3, 65, thread=2).node(4, 75, thread=2).node(5, 85)


def replay(capture: Synthetic, at: int, *nodes: int) -> Synthetic:
    """A launch of a graph that runs these nodes."""
    capture.call(at, 1000 + at, api="cudaGraphLaunch_v10000", duration=4)
    for place, node in enumerate(nodes):
        capture.kernel("k", at, start=at + 10 * place, correlation=1000 + at, node=node)
    return capture


CASES = {  # by what it shows: a capture, and the path of each of its activities
    "the ranges of the node, of a clone its original's, are below those of the launch": (
        replay(captured_step().node(11, 95, original=1).range("measured", 100, 300), 110, 11, 2, 3, 4, 5),
        "measured/forward/norm measured/forward/mlp measured/backward/MulBackward measured/backward measured",
    ),
    "ranges around the capture are left out up to the innermost that is open at the launch": (
        replay(
            replay(
                captured_step().range("warmup", 0, 99).range("step", 5, 98)
                .range("measure", 100, 300).range("step", 105, 200).range("elsewhere", 210, 300), 110, 2,
            ), 220, 2,
        ),
        "measure/step/forward/mlp measure/elsewhere/warmup/step/forward/mlp",
    ),
    "ranges that a capture repeats in their order count once": (
        replay(
            captured_step().range("step", 100, 300).range("forward", 105, 290).range("norm", 106, 280), 110, 1, 2, 4
        ),
        "step/forward/norm step/forward/norm/mlp step/forward/norm/backward",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_replayed_activity_belongs_to_the_ranges_of_its_node(case, tmp_path):
    capture, expected = CASES[case]
    with kernel_tables.read(capture.write(tmp_path / "capture.sqlite")) as profile:
        assert ["/".join(profile.paths[path]) for path in profile.activities()["path_id"]] == expected.split()


def test_nodes_whose_creation_is_not_in_the_capture_are_unknown(tmp_path):
    capture = captured_step().range("step", 100, 200).node(11, 95, original=1).node(12, 95, original=99)
    capture.node(7, -5).node(14, 95, original=7)
    path = replay(capture, 110, 11, 12, 13, 14).kernel("not replayed", 120).write(tmp_path / "capture.sqlite")
    with kernel_tables.read(path) as profile:
        assert profile.attribution.has_unknown_node.tolist() == [False, True, True, True, False]
