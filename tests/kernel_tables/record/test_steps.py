"""What opens and closes the window, on a recorder that notes it, in this process."""

from types import SimpleNamespace

import pytest
import torch

from kernel_tables.record.handover import CALLS, RANGE, Settings
from kernel_tables.record.steps import RangeWindow, StepsWindow


class Noting:
    """Stands for the recorder: notes when it is opened and closed, and the steps between."""

    def __init__(self):
        self.is_waiting, self.is_open, self.completed, self.seen = True, False, 0, []
        note = lambda what: lambda *_: self.seen.append(what)  # noqa: E731
        self.ranges = SimpleNamespace(
            has_modules=True, has_steps=True, step_begins=note("step"), step_ends=note("end"), call_begins=note("call")
        )
        self.notes = SimpleNamespace(add=lambda event, **facts: self.seen.append((event, facts["first"])))

    def open(self, **facts):
        self.is_waiting, self.is_open = False, True
        self.seen.append(("open", facts.get("first")))

    def close(self):
        self.is_open = False
        self.seen.append(("close", self.completed))


@pytest.fixture
def attached(monkeypatch):
    """A function that gives a window that listens to this process, with a made-up CUDA graph, until the test ends."""
    windows = []

    class Graph:
        def capture_begin(self, pool=None):
            assert pool in (None, 3)

        def replay(self): ...

    monkeypatch.setattr(torch.cuda.graphs, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.optim.Optimizer, "__init__", torch.optim.Optimizer.__init__)

    def attach(**settings):
        windows.append(StepsWindow(Noting(), Settings(**settings)))
        return windows[-1]

    yield attach
    for window in windows:
        window._calls.end()


class Optimizer:
    """Something that a step is counted of; it cannot be hashed, as one that compares by value."""

    __hash__ = None


def take_steps(window, *optimizers):
    for optimizer in optimizers:
        window.before_range("Optimizer.step#Adam.step", of_torch=True)
        window.after_range("Optimizer.step#Adam.step", optimizer)


ONE, OTHER = Optimizer(), Optimizer()
TWO_STEPS = [("open", 3), "step", "end", "step", "end", ("close", 2)]


@pytest.mark.parametrize(
    ("skip", "steps", "taken", "seen"),
    [
        (2, 2, [ONE] * 6, TWO_STEPS),
        (2, 2, [ONE, OTHER] * 4, TWO_STEPS),  # of two optimizers in one iteration the steps of one count
        (3, 1, [ONE, ONE, *[OTHER] * 4], [("open", 4), "step", "end", ("close", 1)]),  # another made some before
    ],
)
def test_so_many_steps_go_by_and_so_many_are_recorded(attached, skip, steps, taken, seen):
    window = attached(skip=skip, steps=steps)
    take_steps(window, *taken)
    assert window.recorder.seen == seen
    assert window.recorder.ranges.has_modules  # ranges of PyTorch are told apart


def test_the_median_step_before_the_window_is_known(attached, monkeypatch):
    now = iter([float(second) for second in range(100)])
    monkeypatch.setattr("kernel_tables.record.steps.time.perf_counter", lambda: next(now))
    window = attached(skip=5, steps=3)
    take_steps(window, *[ONE] * 8)
    assert window.progress() == {"repeated": [["optimizer", "Optimizer", 8]], "step_before_s": 1.0}


def replay(graph, times):
    for _ in range(times):
        graph.replay()


def test_where_the_step_is_replayed_as_a_graph_its_replays_are_the_steps(attached):
    window = attached(skip=3, steps=2)
    take_steps(window, *[ONE] * 2)  # to warm up
    replay(torch.cuda.graphs.CUDAGraph(), 6)
    assert window.recorder.seen == [("open", 4), *TWO_STEPS[1:]]


def test_a_graph_that_holds_a_part_of_a_step_is_no_step(attached):
    window, graph = attached(skip=2, steps=1), torch.cuda.graphs.CUDAGraph()
    for _ in range(2):
        replay(graph, 1)
        assert window.recorder.seen == []
        take_steps(window, ONE)
    assert window.recorder.seen == [("open", 3), "step"]


def test_the_window_opens_before_a_capture_whose_ranges_tell_what_is_replayed(attached):
    window, graph = attached(skip=2, steps=1), torch.cuda.graphs.CUDAGraph()
    graph.capture_begin(pool=3)
    assert window.recorder.seen == [("open", None)]
    replay(graph, 3)
    assert window.recorder.seen == [("open", None), ("steps", 3), "step", "end", ("close", 1)]


class Model(torch.nn.Module):
    """A model with a part and an activation without parameters."""

    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(2, 2)

    def forward(self, x):
        return torch.nn.functional.relu(self.part(x))


def test_without_an_optimizer_the_calls_of_the_model_are_the_steps_from_their_begin(attached):
    window, model, loss = attached(skip=2, steps=2), Model(), torch.nn.MSELoss()
    for _ in range(5):
        loss(model(torch.ones(2)), torch.ones(2))
    assert window.recorder.seen == [("open", 3), "step", "call", "end", "step", "end", ("close", 2)]
    assert window.progress()["repeated"] == [["module", "Model", 5]]


def test_with_an_optimizer_calls_are_no_steps_unless_they_are_asked_for(attached):
    window, asked, model = attached(skip=1, steps=1), attached(window=CALLS, skip=1, steps=1), Model()
    torch.optim.SGD(model.parameters())
    for _ in range(3):
        model(torch.ones(2))
    assert window.recorder.seen == []
    assert asked.recorder.seen == [("open", 2), "step", "call", "end", ("close", 1)]


def test_instances_of_a_range_open_and_close_the_window_around_them():
    window = RangeWindow(Noting(), Settings(window=RANGE, range="step", skip=1, steps=2))
    for name in ("step", "load", "step", "load", "step", "step"):
        window.before_range(name, of_torch=False)
        if name == "step":  # a range inside one of its name is part of it
            window.before_range("step", of_torch=False)
            window.after_range("step")
        window.after_range(name)
    assert window.recorder.seen == [("open", 2), ("close", 2)]
    assert not window.recorder.ranges.has_modules and not window.recorder.ranges.has_steps
