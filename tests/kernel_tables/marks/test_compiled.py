"""Ranges that the program opens which inductor writes for a compiled graph."""

import pytest
import torch

from kernel_tables.marks import Emitter, Marker, compiled


def products(x, first, second):
    y = x @ first
    return y @ second


def part_of(stack_trace: str) -> str | None:
    return next((part for part, code in (("first", "@ first"), ("second", "@ second")) if code in stack_trace), None)


@pytest.fixture
def opened():
    """The names of ranges as they open, closed ones as "/"; and inductor as it was afterwards."""
    names = []
    compiled.follow_compiled(lambda traces, _: compiled.joint_name(map(part_of, traces)))
    compiled.open_ranges(Marker(Emitter(names.append, lambda: names.append("/"))))
    yield names
    compiled.open_ranges(None)
    compiled.leave_compiled()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's imports use what PyTorch has deprecated
def test_a_compiled_graph_opens_ranges_around_its_calls_forward_and_backward(opened, tmp_path, monkeypatch):
    """Matrix products alone: they are calls of a library, and no C++ has to be compiled for them."""

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
    opened.clear()
    compiled.open_ranges(None)
    compiled.enter(compiled.joint_name(["qkv projection", None, "norm", "norm"]))
    assert opened == []
