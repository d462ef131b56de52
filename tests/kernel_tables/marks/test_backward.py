"""Parts of a model around what differentiates them: which ranges open, on which thread; and nothing else changes."""

import json
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

from kernel_tables.marks import Emitter, Marker, follow_backward, mark

ROOT = Path(__file__).parents[3]


class Recorded:
    """What a marker opened: every path in order, by thread, and that each range was closed on its thread."""

    def __init__(self):
        self.open = threading.local()
        self.paths = {}

    def push(self, name):
        self.open.names = [*getattr(self.open, "names", []), name]
        self.paths.setdefault(threading.get_ident(), []).append(" > ".join(self.open.names))

    def pop(self):
        self.open.names = self.open.names[:-1]

    @property
    def here(self):
        """The paths that this thread opened since they were last asked for."""
        assert getattr(self.open, "names", []) == []
        return self.paths.pop(threading.get_ident(), [])


@pytest.fixture
def recorded():
    return Recorded()


@pytest.fixture
def marker(recorded):
    made = Marker(Emitter(recorded.push, recorded.pop))
    follow_backward(made)
    yield made
    follow_backward(None)


@pytest.fixture
def x():
    return torch.arange(4.0, requires_grad=True)


def test_a_part_opens_again_around_what_differentiates_it_as_often_as_it_was_open(marker, recorded, x):
    y = x
    for _ in range(2):
        with marker.part("outer"):
            y = y.exp()
            with marker.part("inner"):
                y = y.sin()
            y = y.cos()
    y = y.square()
    assert recorded.here == ["outer", "outer > inner"] * 2
    y.sum().backward()
    assert recorded.here == ["outer", "outer > inner"] * 2


def test_what_ran_outside_all_parts_stands_in_none(marker, recorded, x):
    seen = []
    with marker.part("part"):
        y = x.exp()
    z = y.sin()
    y.register_hook(lambda gradient: seen.append(list(recorded.open.names)))  # before the node of `part`
    z.register_hook(lambda gradient: seen.append(list(recorded.open.names)))
    x.register_hook(lambda gradient: seen.append(list(recorded.open.names)))
    with marker.range("backward"):
        z.sum().backward()
    assert seen == [["backward"], ["backward"], ["backward", "part"]]


def test_a_part_around_forward_and_backward_pass_is_not_opened_inside_itself(marker, recorded, x):
    with marker.part("whole"):
        with marker.part("part"):
            y = x.exp()
        with marker.part("backward"):
            y.sum().backward()
    assert recorded.here == ["whole", "whole > part", "whole > backward", "whole > backward > part"]


def test_a_retained_graph_opens_its_parts_once_in_each_backward_pass(marker, recorded, x):
    with marker.part("part"):
        y = x.exp().sum()
    recorded.here.clear()
    for _ in range(3):
        y.backward(retain_graph=True)
        assert recorded.here == ["part"]
    assert y.grad_fn.metadata == {}  # which is the program's


def test_the_gradient_of_some_inputs_opens_their_parts_and_a_gradient_edge_is_a_root_like_its_tensor(
    marker, recorded, x
):
    with marker.part("first"):
        y = x.exp()
    with marker.part("second"):
        middle = y.sin()
    with marker.part("third"):
        y = middle.exp()
    recorded.here.clear()
    torch.autograd.grad(outputs=[y.sum()], inputs=[middle], retain_graph=True)
    assert recorded.here == ["third", "second"]
    torch.autograd.backward(torch.autograd.graph.get_gradient_edge(middle), torch.ones(4))
    assert recorded.here == ["second", "first"]


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_a_checkpoint_computes_again_stands_apart(marker, recorded, x, reentrant):
    def block(x):
        with marker.part("block"):
            y = x.exp()
            with marker.part("inner"):
                return y.sin().cos()

    with marker.part("model"):
        y = checkpoint(block, x, use_reentrant=reentrant)
    recorded.here.clear()
    y.sum().backward()
    paths = recorded.here
    again = ["recomputation", "recomputation > block", "recomputation > block > inner"]
    # Without reentrance the nodes are those of the first pass, inside the model; with it, those of the second.
    inside = ["model > block", "model > block > inner"]
    if reentrant:
        assert paths == ["model", *again, "model", *inside]
    else:
        assert paths == ["model", *inside, *again, "model", *inside]


def test_every_thread_that_calls_backward_has_its_own_parts(marker, recorded):
    barrier, paths = threading.Barrier(2), {}

    def train(number):
        x = torch.ones(3, requires_grad=True)
        for _ in range(20):
            barrier.wait()
            with marker.part(f"a{number}"):
                y = x.exp()
            with marker.part(f"b{number}"):
                y = y.sin()
            y.sum().backward()
        paths[number] = recorded.here

    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert paths == {number: [f"a{number}", f"b{number}", f"b{number}", f"a{number}"] * 20 for number in range(2)}


def test_parts_open_and_close_on_the_thread_of_a_device_before_the_backward_pass_is_over():
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernel_tables.marks.other_device"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    here, there = True, False
    forward = [[here, "first"], [here, "/"], [here, "second"], [here, "/"]]
    backward = [[there, "second"], [there, "/"], [there, "first"], [there, "/"]]
    expected = [*forward, [here, "backward"], *backward, [here, "/"]] * 2
    assert json.loads(done.stdout) == {"opened": expected, "has_sympy": False}


def test_an_error_in_a_backward_pass_leaves_no_range_open(marker, recorded, x):
    with marker.part("part"):
        y = x.exp()
    y.register_hook(lambda gradient: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    y = x.exp().sum()
    recorded.here.clear()
    y.backward()
    assert recorded.here == []


def operators(model, tokens) -> tuple[Counter, list[torch.Tensor]]:
    """How often each operator ran in a forward and backward pass, and the gradients."""
    model.zero_grad(set_to_none=True)
    with profile(activities=[ProfilerActivity.CPU]) as recording:
        model(tokens).sum().backward()
    names = Counter(event.name for event in recording.events() if event.name.startswith("aten::"))
    return names, [parameter.grad for parameter in model.parameters()]


class Twice(nn.Module):
    """A residual, a weight and a tensor with several uses, a bias whose gradient is one that passes, an operation in
    place: wherever autograd may take a tensor over instead of copying it."""

    def __init__(self, part):
        super().__init__()
        self.part = part
        self.linear, self.bias = nn.Linear(8, 8), nn.Parameter(torch.ones(5, 8))

    def forward(self, x):
        with self.part("first"):
            x = x + self.linear(x)
        with self.part("second"):
            y = self.linear(x).mul_(2).tanh()
        with self.part("many"):
            y = y.exp() + y.sin() + y.cos() + y * 3
        with self.part("bias"):
            return (x + y) + self.bias


def test_marking_changes_no_gradient_and_adds_no_operator(recorded):
    torch.manual_seed(0)
    marker = Marker(Emitter(recorded.push, recorded.pop))
    model, x = Twice(marker.part), torch.randn(5, 8)
    plain = operators(model, x)
    follow_backward(marker)
    try:
        marked = operators(model, x)
    finally:
        follow_backward(None)
    assert marked[0] == plain[0]
    assert plain[0]["aten::add_"] > 0  # gradients were summed in place, and are so with hooks
    assert all(torch.equal(one, other) for one, other in zip(marked[1], plain[1], strict=True))
    assert any(path.endswith("second") for path in recorded.here)


def test_one_call_marks_all_modules_of_a_model_forward_and_backward_until_its_end(recorded, x):
    model, before = nn.Sequential(nn.Linear(4, 4), nn.GELU()), torch.autograd.backward
    with mark(model, Emitter(recorded.push, recorded.pop)):
        model(x).sum().backward()
        assert recorded.here == [
            "Sequential", "Sequential > Linear", "Sequential > GELU", "backward", "backward > Sequential",
            "backward > Sequential > GELU", "backward > Sequential > Linear",
        ]  # fmt: skip
    model(x).sum().backward()
    assert recorded.here == [] and torch.autograd.backward is before
    with profile(activities=[ProfilerActivity.CPU]) as recording, mark(model):  # by default, ranges of this profiler
        model(x)
    names = {event.name for event in recording.events() if not event.name.startswith(("aten", "detach"))}
    assert names == {"Sequential", "Linear", "GELU"}
