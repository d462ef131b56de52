"""Compiled graphs by part: which part a line of source stands in, and the ranges that inductor's program opens."""

from contextlib import contextmanager, nullcontext

import pytest
import torch

from range_marks import compiled
from range_marks.compiled import SourceParts
from range_marks.marker import Emitter, Marker

SECOND = "second"


def span(name):
    return nullcontext()


def model(x, first, second):
    with span("first"):
        y = x @ first
    with span("outer"):
        y = y.view_as(y)
        with span(SECOND):
            return inner(y, second)


def inner(x, weight):
    return x @ weight


def frame(function, offset: int) -> str:
    """A line of a stack of calls, so many lines below the head of a function of this file."""
    return f'  File "{__file__}", line {function.__code__.co_firstlineno + offset}, in {function.__name__}\n    code\n'


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        (frame(model, 2), "first"),
        (frame(model, 4), "outer"),
        (frame(model, 6), "second"),
        (frame(model, 6) + frame(inner, 1), "second"),  # called in a part
        (frame(inner, 1), None),
        (frame(model, 6) + '  File "/elsewhere/not_here.py", line 1, in f\n', "second"),
        ("", None),
    ],
)
def test_a_stack_of_calls_stands_in_the_innermost_part_that_is_written_around_its_lines(stack, part):
    assert SourceParts(span).innermost(stack) == part


def test_only_calls_of_that_function_open_parts():
    assert SourceParts(contextmanager).innermost(frame(model, 2)) is None


def test_a_set_of_parts_has_one_name():
    assert compiled.joint_name(["qkv projection", None, "norm", "norm"]) == "norm + qkv projection"
    assert compiled.joint_name(["norm", "qkv projection"]) == "norm + qkv projection"
    assert compiled.joint_name([None]) == ""


@pytest.fixture
def opened():
    """The names of ranges as they open, closed ones as "/"; and inductor as it was afterwards."""
    names = []
    part_of = SourceParts(span).innermost
    compiled.follow_compiled(lambda origins: compiled.joint_name(map(part_of, origins.stack_traces)))
    compiled.open_ranges(Marker(Emitter(names.append, lambda: names.append("/"))))
    yield names
    compiled.open_ranges(None)
    compiled.leave_compiled()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's imports use what PyTorch has deprecated
def test_a_compiled_graph_opens_ranges_around_its_calls_forward_and_backward(opened, tmp_path, monkeypatch):
    """Matrix products alone: they are calls of a library, and no C++ has to be compiled for them."""

    def products(x, first, second):
        return model(x, first, second)

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # what it compiled elsewhere opens nothing
    torch.manual_seed(0)
    tensors = [torch.randn(4, 4, requires_grad=True) for _ in range(3)]
    expected = torch.autograd.grad(products(*tensors), tensors, torch.ones(4, 4))
    result = torch.compile(products, fullgraph=True)(*tensors)
    assert opened == ["first", "/", "second", "/"]
    opened.clear()
    found = torch.autograd.grad(result, tensors, torch.ones(4, 4))
    assert opened == ["second", "/", "first", "/"]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_what_was_compiled_before_opens_nothing_once_nobody_follows(opened):
    compiled.open_ranges(None)
    compiled.enter("norm")
    assert opened == []
