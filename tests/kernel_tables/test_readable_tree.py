"""The tree that people read: phases side by side and always there, children that add up, few rows."""

import random

import pytest

from kernel_tables.trace import Trace
from kernel_tables.views.readable_tree import RangeTree
from tests.kernel_tables.diagnosis.program import GEMM, MUL, NCCL, Program
from tests.kernel_tables.synthetic import Synthetic

ADAM = "Optimizer.step#Adam.step"


def rows_of(capture: Synthetic, tmp_path, most: int = 0) -> list[tuple[int, str, int]]:
    """(depth, label, kernels) of the rows."""
    with Trace(capture.write(tmp_path / "capture.sqlite")) as trace:
        return [(row.depth, row.label, row.node.kernels) for row in RangeTree(trace).rows(most)]


def passes(program: Program) -> None:
    program.pause(1)
    with program.range("Net"):
        program.launch(GEMM, 30)
    program.pause(1)
    with program.range("backward"):
        program.pause(1)
        with program.range("Net"):
            program.launch(GEMM, 60)
        program.pause(1)


def test_forward_backward_and_optimizer_are_siblings_whoever_calls_whom(tmp_path):
    program = Program()
    with program.range("step"):
        program.pause(1)
        passes(program)
        with program.range(ADAM):
            program.launch(MUL, 5)
        program.pause(1)
    plain = [
        (0, "step", 3),
        (1, "backward", 1),
        (2, "Net", 1),
        (1, "forward", 1),
        (2, "Net", 1),
        (1, "optimizer (Adam)", 1),
    ]
    assert rows_of(program.capture, tmp_path) == plain
    program = Program()
    with program.range("step"):
        program.pause(1)
        with program.range(ADAM):
            passes(program)
            program.launch(MUL, 5)
        program.pause(1)
    assert rows_of(program.capture, tmp_path) == plain


def test_a_program_without_a_backward_pass_keeps_its_names(tmp_path):
    capture = Synthetic().range("generate", 0, 1000).range("Net", 10, 900).kernel(GEMM, at=20)
    assert rows_of(capture, tmp_path) == [(0, "generate", 1), (1, "Net", 1)]


def test_communication_is_a_part_of_its_phase_and_of_no_module_that_starts_it(tmp_path):
    capture = Synthetic().range("step", 0, 1000).range("backward", 10, 900).range("Linear", 20, 800)
    capture.kernel(GEMM, at=30, duration=50).kernel(NCCL, at=40, duration=200)
    assert rows_of(capture, tmp_path) == [(0, "step", 2), (1, "backward", 2), (2, "communication", 1), (2, "Linear", 1)]
    gloo = Synthetic().range("step", 0, 1000).range("backward", 10, 900).range("Linear", 20, 800)
    gloo.kernel("aten::mm", at=30, device=-1).kernel("gloo:all_reduce", at=40, duration=200, device=-1)
    assert (2, "communication", 1) in rows_of(gloo, tmp_path)


def test_units_of_fsdp_stand_together_as_layers_do(tmp_path):
    capture = Synthetic().range("step", 0, 1000)
    for unit in range(5):
        at = 10 + 100 * unit
        name = f"FSDP::pre_forward (layers.{unit})" if unit else "FSDP::pre_forward for layers.0"
        capture.range(name, at, at + 50).kernel(NCCL, at=at + 1)
        capture.range("FSDP::pre_forward" if unit else "root", at + 60, at + 90).kernel(MUL, at=at + 61)
    rows = rows_of(capture, tmp_path)
    assert [row for row in rows if "FSDP" in row[1]] == [(1, "FSDP::pre_forward", 9)]


def test_parts_of_a_compiled_model_that_share_a_kernel_are_shortened_one_by_one(tmp_path):
    capture = Synthetic().range("step", 0, 1000).range("layers", 10, 90)
    capture.range("head + layers.act + layers.up", 20, 60).kernel(GEMM, at=40)
    assert rows_of(capture, tmp_path)[-1] == (2, "head + .act + .up", 1)


def test_ranges_that_launched_nothing_have_no_row(tmp_path):
    capture = Synthetic().range("step", 0, 1000).range("empty", 10, 20).range("forward", 30, 90).kernel(GEMM, at=40)
    assert rows_of(capture, tmp_path) == [(0, "step", 1), (1, "forward", 1)]


def test_of_many_rows_the_phases_stay_and_small_ones_stand_together(tmp_path):
    program = Program()
    with program.range("step"):
        program.pause(1)
        for phase, time in (("backward", 50), ("forward", 20), ("optimizer", 1)):
            with program.range(phase):
                program.pause(1)
                for layer in range(30):
                    with program.range(f"layer{layer}"):
                        program.launch(GEMM, time)
    with Trace(program.capture.write(tmp_path / "capture.sqlite")) as trace:
        tree = RangeTree(trace)
        rows = tree.rows(20)
    assert len(tree) == 4 + 90
    assert [row.label for row in rows if row.depth <= 1] == ["step", "backward", "forward", "optimizer"]
    assert len(rows) <= 20 + 3
    assert [row.range_count for row in rows if row.range_count > 1] == [
        30 - sum(row.label.startswith("layer") for row in rows)
    ]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [0, 6, 15])
def test_the_rows_below_a_row_add_up_to_it(seed, most, tmp_path):
    numbers, program = random.Random(seed), Program()

    def fill(depth: int) -> None:
        for _ in range(numbers.randrange(1, 4)):
            program.launch(numbers.choice([GEMM, MUL, NCCL]), numbers.randrange(1, 50))
            if depth:
                names = ["a", "backward", "Net", ADAM, "FSDP::x (1)"]
                with program.range(numbers.choice(names)):
                    program.pause(1)
                    fill(depth - 1)
                    program.pause(1)

    with program.range("step"):
        program.pause(1)
        fill(4)
        program.pause(1)
    with Trace(program.capture.write(tmp_path / "capture.sqlite")) as trace:
        rows = RangeTree(trace).rows(most)
        total_ns = int(trace.classes()["total_ns"].sum())
    assert rows[0].node.ns == total_ns
    for place, row in enumerate(rows):
        after = [one.depth for one in rows[place + 1 :]]
        end = next((n for n, depth in enumerate(after) if depth <= row.depth), len(after))
        children = [one for one in rows[place + 1 : place + 1 + end] if one.depth == row.depth + 1]
        if children:
            assert sum(one.node.ns for one in children) == row.node.ns
            assert sum(one.node.kernels for one in children) == row.node.kernels
