"""What a span does under each profiler; tests/golden/grid/ranges.csv has the ranges of a step."""

import pytest
import torch

from cs336_model import ranges
from cs336_model.benchmark import Subject
from tests.cs336_model.conftest import make_spec


@pytest.mark.parametrize(("checkpoint", "recomputed"), [("3", 4), ("9", 4), ("4-2", 6)])
def test_all_blocks_of_a_checkpoint_run_again_inside_recomputation(monkeypatch, checkpoint, recomputed):
    """Four blocks; a block's range is opened four times forward, and again where it is computed again: of nested
    checkpoints, all but the last group inside a group are computed twice."""
    open_names, blocks = [], []

    def push(name: str) -> None:
        open_names.append(name)
        if name == "block":
            blocks.append(" > ".join(open_names[2:]))

    monkeypatch.setattr("nvtx.push_range", push)
    monkeypatch.setattr("nvtx.pop_range", open_names.pop)
    ranges.emit_ranges("nsys")
    sizes = {"d_model": 16, "num_layers": 4, "num_heads": 2, "d_ff": 32}
    spec = make_spec(checkpoint=checkpoint, sizes=sizes, mode="forward_backward")
    Subject(spec, torch.device("cpu")).run_steps("measure", 1)
    assert blocks[:4] == ["forward > block"] * 4 and open_names == []
    assert blocks.count("backward > recomputation > block") == recomputed
    assert set(blocks[4:]) == {"backward > recomputation > block", "backward > block"}


def in_parts(x, first, second):
    with ranges.span("first"):
        y = x @ first
    with ranges.span("outer"):
        y = y.view_as(y)
        with ranges.span("second"):
            return inner(y, second)


def inner(x, weight):
    return x @ weight


def frame(function, offset: int) -> str:
    """A line of a stack of calls, so many lines below the head of a function of this file."""
    return f'  File "{__file__}", line {function.__code__.co_firstlineno + offset}, in {function.__name__}\n    code\n'


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (frame(in_parts, 2), "first"),
        (frame(in_parts, 4), "outer"),
        (frame(in_parts, 6) + frame(inner, 1), "second"),  # called in a part
        (frame(inner, 1), None),
        (frame(in_parts, 6) + '  File "/elsewhere/not_here.py", line 1, in f\n', "second"),
        ("", None),
    ],
)
def test_a_stack_of_calls_stands_in_the_innermost_part_that_is_written_around_its_lines(stack, part):
    assert ranges.find_part(stack) == part
