"""What a span does under each profiler, and how the model's ranges nest."""

from contextlib import contextmanager

import pytest
import torch
from torch.autograd.profiler import profile

import kernel_tables
from cs336_model import ranges
from cs336_model.benchmark import Subject
from kernel_tables.trace import export_capture
from tests.cs336_model.conftest import make_spec

INSIDE_FORWARD = """
embedding
block
block > norm
block > attention
block > attention > qkv projection
block > attention > rope
block > attention > scaled dot product attention
block > attention > scaled dot product attention > computing attention scores
block > attention > scaled dot product attention > mask and scale
block > attention > scaled dot product attention > computing softmax
block > attention > scaled dot product attention > final matmul
block > attention > output projection
block > residual
block > feed-forward
block > feed-forward > activation
norm
head
"""


@pytest.fixture
def pushed(monkeypatch) -> list[str]:
    """The paths of the ranges that NVTX is told to push from now on, in their order."""
    open_names, paths = [], []

    def push(name: str) -> None:
        open_names.append(name)
        paths.append(" > ".join(open_names))

    monkeypatch.setattr("nvtx.push_range", push)
    monkeypatch.setattr("nvtx.pop_range", open_names.pop)
    ranges.emit_ranges("nsys")
    yield paths
    assert open_names == []


def test_a_train_step_opens_exactly_the_promised_paths():
    open_names, paths = [], []

    @contextmanager
    def record(name: str):
        open_names.append(name)
        paths.append(" > ".join(open_names))
        yield
        open_names.pop()

    ranges.open_spans_with(record)
    steps, layers = 2, 2
    Subject(make_spec(), torch.device("cpu")).run_steps("measure", steps)
    forward = [f"measure > step > forward > {line}" for line in INSIDE_FORWARD.strip().splitlines()]
    phases = [f"measure > step > {phase}" for phase in ("forward", "loss", "backward", "optimizer", "synchronize")]
    assert set(paths) == {"measure", "measure > step", *phases, *forward}
    assert paths.count("measure > step > forward > block") == steps * layers
    assert paths.count("measure > step > forward > block > norm") == steps * layers * 2
    assert paths.count("measure > step > forward > norm") == steps


def test_the_backward_pass_opens_every_part_of_the_forward_pass_again(pushed):
    Subject(make_spec(mode="forward_backward"), torch.device("cpu")).run_steps("measure", 1)
    again = {path.removeprefix("measure > step > backward > ") for path in pushed if " > backward > " in path}
    assert again == {*INSIDE_FORWARD.strip().splitlines(), "loss"}


def test_a_name_that_pytorchs_profiler_would_lose_is_kept_in_the_capture(tmp_path):
    ranges.emit_ranges("torch")
    with profile(use_kineto=True) as recording, ranges.span('\u6ce8\u610f "attention" \\'):
        torch.ones(2)
    export_capture(recording, tmp_path / "capture.sqlite", on_gpu=False, torch_version=torch.__version__)
    with kernel_tables.read(tmp_path / "capture.sqlite") as read:
        assert read.ranges()["range"].tolist() == ['\u6ce8\u610f "attention" \\']


@pytest.mark.parametrize(("checkpoint", "recomputed"), [("1", 4), ("3", 4), ("9", 4), ("4-2", 6)])
def test_all_blocks_of_a_checkpoint_run_again_inside_recomputation(pushed, checkpoint, recomputed):
    """Four blocks; a block's range is opened four times forward, and again where it is computed again: of nested
    checkpoints, all but the last group inside a group are computed twice."""
    sizes = {"d_model": 16, "num_layers": 4, "num_heads": 2, "d_ff": 32}
    spec = make_spec(checkpoint=checkpoint, sizes=sizes, mode="forward_backward")
    Subject(spec, torch.device("cpu")).run_steps("measure", 1)
    blocks = [path.removeprefix("measure > step > ") for path in pushed if path.endswith(" > block")]
    assert blocks.count("forward > block") == 4
    assert blocks.count("backward > recomputation > block") == recomputed
    assert set(blocks[4:]) == {"backward > recomputation > block", "backward > block"}


SECOND = "second"


def in_parts(x, first, second):
    with ranges.span("first"):
        y = x @ first
    with ranges.span("outer"):
        y = y.view_as(y)
        with ranges.span(SECOND):
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
        (frame(in_parts, 6), "second"),
        (frame(in_parts, 6) + frame(inner, 1), "second"),  # called in a part
        (frame(inner, 1), None),
        (frame(in_parts, 6) + '  File "/elsewhere/not_here.py", line 1, in f\n', "second"),
        ("", None),
    ],
)
def test_a_stack_of_calls_stands_in_the_innermost_part_that_is_written_around_its_lines(stack, part):
    assert ranges.find_part(stack) == part
