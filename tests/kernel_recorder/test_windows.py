"""What opens and closes the window, on a recorder that notes it, in this process."""

import gc
import threading
import time
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch

from kernel_recorder.in_process.handover import CALLS, NSYS, PROGRAM, RANGE, SECONDS, TORCH, Notes, Settings, read_notes
from kernel_recorder.in_process.module_ranges import WindowRanges
from kernel_recorder.in_process.profilers import NsysProfiler, TorchProfiler
from kernel_recorder.in_process.ranks import RankCoordinator
from kernel_recorder.in_process.recorder import Recorder, collect_due_garbage
from kernel_recorder.in_process.steps_window import StepsWindow
from kernel_recorder.in_process.windows import ProgramWindow, RangeWindow, SecondsWindow, call_on_main_thread
from range_marks.closures import Closures


@dataclass
class Noting:
    """Stands for the recorder: notes when it is opened and closed, and the steps between."""

    is_waiting: bool = True
    is_open: bool = False
    completed: int = 0
    seen: list = field(default_factory=list)
    can_start_over: bool = True

    @property
    def ranges(self):
        return self

    def start_over(self):
        self.is_waiting, self.is_open, self.completed = True, False, 0
        self.seen.append("over")

    def open(self, **facts):
        self.is_waiting, self.is_open = False, True
        self.seen.append(("open", facts.get("first")))
        return True

    def close(self):
        self.is_open = False
        self.seen.append(("close", self.completed))

    def add_facts(self, **facts):
        self.seen.append(("steps", facts["first"]))

    def call_before_window(self, module, args):
        pass

    def call_begins(self, module, args):
        self.seen.append("call")

    def step_begins(self):
        self.seen.append("step")

    def step_ends(self):
        self.seen.append("end")


class Optimizer:
    """Something that a step is counted of; it cannot be hashed, as one that compares by value."""

    __hash__ = None


def steps_of(window, *optimizers):
    for optimizer in optimizers:
        window.before_range("Optimizer.step#Adam.step", of_torch=True)
        window.after_range("Optimizer.step#Adam.step", optimizer)


def test_so_many_steps_go_by_and_so_many_are_recorded():
    window = StepsWindow(Noting(), Settings(skip=2, steps=2))
    steps_of(window, *[Optimizer()] * 6)
    assert window.recorder.seen == [("open", 3), "step", "end", "step", "end", ("close", 2)]


def test_of_two_optimizers_in_one_iteration_the_steps_of_one_count():
    window, one, other = StepsWindow(Noting(), Settings(skip=2, steps=2)), Optimizer(), Optimizer()
    steps_of(window, *[one, other] * 4)
    assert window.recorder.seen == [("open", 3), "step", "end", "step", "end", ("close", 2)]
    assert window.progress()["reached"] == 4


def test_an_iteration_ends_with_the_last_optimizer_of_those_that_take_turns():
    window, one, other = StepsWindow(Noting(), Settings(skip=2, steps=1)), Optimizer(), Optimizer()
    steps_of(window, one, other, one)
    assert window.recorder.seen == []
    steps_of(window, other, one)
    assert window.recorder.seen == [("open", 3), "step"]
    steps_of(window, other)
    assert window.recorder.seen == [("open", 3), "step", "end", ("close", 1)]


def test_an_optimizer_that_makes_a_few_steps_first_does_not_hinder():
    window, first, second = StepsWindow(Noting(), Settings(skip=3, steps=1)), Optimizer(), Optimizer()
    steps_of(window, first, first, *[second] * 4)
    assert window.recorder.seen == [("open", 4), "step", "end", ("close", 1)]


def test_a_step_ends_where_the_range_around_it_closes_and_not_before():
    window = StepsWindow(Noting(), Settings(skip=1, steps=1))
    window.before_range("Optimizer.step#Adam.step", of_torch=True)
    assert window.recorder.seen == []
    window.after_range("Optimizer.step#Adam.step", Optimizer())
    assert window.recorder.seen == [("open", 2), "step"]


def replays_of(window, graph, count):
    for _ in range(count):
        window._after_replay(graph)


def test_where_the_step_is_replayed_as_a_graph_its_replays_are_the_steps():
    window = StepsWindow(Noting(), Settings(skip=3, steps=2))
    steps_of(window, *[Optimizer()] * 2)  # to warm up
    replays_of(window, object(), 6)
    assert window.recorder.seen == [("open", 4), "step", "end", "step", "end", ("close", 2)]


def test_a_graph_that_holds_a_part_of_a_step_is_no_step():
    window, graph, optimizer = StepsWindow(Noting(), Settings(skip=2, steps=1)), object(), Optimizer()
    for _ in range(2):
        replays_of(window, graph, 1)
        assert window.recorder.seen == []
        steps_of(window, optimizer)
    assert window.recorder.seen == [("open", 3), "step"]


@pytest.fixture
def graph(monkeypatch):
    """A CUDA graph that notes what is called, in the place of PyTorch's until the test ends."""

    class Graph:
        called: ClassVar[list] = []

        def capture_begin(self, pool=None):
            self.called.append(("capture", pool))

        def replay(self):
            self.called.append("replay")

    monkeypatch.setattr(torch.cuda.graphs, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.optim.Optimizer, "__init__", torch.optim.Optimizer.__init__)
    return Graph()


def test_replaying_calls_the_graph_and_counts(graph):
    window = StepsWindow(Noting(), Settings(skip=1, steps=1))
    window.attach()
    graph.replay()
    graph.replay()
    window._calls.end()
    assert graph.called == ["replay", "replay"]
    assert window.recorder.seen == [("open", 2), "step", "end", ("close", 1)]


@pytest.mark.parametrize("profiler", [NSYS, TORCH])
def test_the_window_opens_before_a_capture_whose_ranges_tell_what_is_replayed(graph, profiler):
    window = StepsWindow(Noting(), Settings(skip=2, steps=1, profiler=profiler))
    window.attach()
    graph.capture_begin(pool=3)
    assert (window.recorder.seen, graph.called) == ([("open", None)], [("capture", 3)])
    for _ in range(3):
        graph.replay()
    window._calls.end()
    assert window.recorder.seen == [("open", None), ("steps", 3), "step", "end", ("close", 1)]


@pytest.fixture
def calls(monkeypatch):
    """A function that gives a window that hears the calls of modules of this process, until the test ends."""
    windows = []
    monkeypatch.setattr(torch.optim.Optimizer, "__init__", torch.optim.Optimizer.__init__)
    monkeypatch.setattr(torch.cuda.graphs.CUDAGraph, "replay", torch.cuda.graphs.CUDAGraph.replay)

    def attached(**settings):
        windows.append(StepsWindow(Noting(), Settings(**settings)))
        windows[-1].attach()
        return windows[-1]

    yield attached
    for window in windows:
        window._calls.end()


class Calling(torch.nn.Module):
    """A model with a part and a loss without parameters."""

    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(2, 2)

    def forward(self, x):
        return torch.nn.functional.relu(self.part(x))


def test_without_an_optimizer_the_calls_of_the_model_are_the_steps_from_their_begin(calls):
    window, model, loss = calls(skip=2, steps=2), Calling(), torch.nn.MSELoss()
    for _ in range(5):
        loss(model(torch.ones(2)), torch.ones(2))
    assert window.recorder.seen == [("open", 3), "step", "call", "end", "step", "end", ("close", 2)]
    assert window.progress()["repeated"] == [["module", "Calling", 5]]


@pytest.mark.parametrize("calls_before", [5, 20])
def test_an_evaluation_before_there_is_an_optimizer_gives_its_window_to_the_steps(calls, calls_before):
    window, model = calls(skip=2, steps=3), Calling()
    for _ in range(calls_before):
        model(torch.ones(2))
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(6):
        model(torch.ones(2)).sum().backward()
        steps_of(window, optimizer)
    seen = window.recorder.seen
    assert seen[seen.index("over") :] == ["over", ("open", 3), "step", *["end", "step"] * 2, "end", ("close", 3)]
    assert seen[0] == ("open", 3)


def test_calls_keep_their_window_where_the_profiler_records_one(calls):
    window, model = calls(skip=2, steps=1), Calling()
    window.recorder.can_start_over = False
    for _ in range(4):
        model(torch.ones(2))
    steps_of(window, *[torch.optim.SGD(model.parameters())] * 6)
    assert window.recorder.seen == [("open", 3), "step", "call", "end", ("close", 1)]


def test_steps_that_are_not_heard_are_counted_by_the_weights_that_they_change(calls):
    window, model = calls(skip=2, steps=2), Calling()
    torch.optim.SGD(model.parameters())
    kept = torch.optim.SGD(model.part.parameters())
    for _ in range(5):
        for _ in range(2):  # gradient accumulation
            model(torch.ones(2))
        with torch.no_grad():
            kept.param_groups[0]["params"][0].add_(1)  # as compiled code does
    assert window.recorder.seen == [("open", 3), "step", "call", "end", "step", "end", ("close", 2)]
    assert window.progress()["repeated"] == [["weights", "SGD", 4]]


def test_with_an_optimizer_calls_are_no_steps_unless_they_are_asked_for(calls):
    window, asked, model = calls(skip=1, steps=1), calls(window=CALLS, skip=1, steps=1), Calling()
    torch.optim.SGD(model.parameters())
    for _ in range(3):
        model(torch.ones(2))
    assert window.recorder.seen == []
    assert asked.recorder.seen == [("open", 2), "step", "call", "end", ("close", 1)]


def instances(window, *names):
    for name in names:
        window.before_range(name, of_torch=False)
        window.after_range(name)


def test_instances_of_a_range_open_and_close_the_window_around_them():
    window = RangeWindow(Noting(), Settings(window=RANGE, range="step", skip=1, steps=2))
    instances(window, "step", "load", "step", "load", "step", "step")
    assert window.recorder.seen == [("open", 2), ("close", 2)]


def test_a_range_inside_one_of_its_name_is_part_of_it():
    window = RangeWindow(Noting(), Settings(window=RANGE, range="step", skip=0, steps=1))
    window.before_range("step", of_torch=False)
    instances(window, "step")
    assert window.recorder.seen == [("open", 1)]
    window.after_range("step")
    assert window.recorder.seen == [("open", 1), ("close", 1)]


def test_ranges_of_the_program_are_told_from_those_of_pytorch():
    window = StepsWindow(Noting(), Settings())
    window.before_range("Optimizer.step#Adam.step", of_torch=True)
    assert not window.has_own_ranges
    instances(window, "forward")
    assert window.has_own_ranges
    assert not window.has_own_steps
    instances(window, "step")
    assert window.has_own_steps


def test_a_window_in_seconds_opens_and_closes_on_the_main_thread():
    window = SecondsWindow(Noting(), Settings(window=SECONDS, delay_s=0.0, duration_s=0.02))
    where = []
    window.recorder.open = lambda: where.append(threading.current_thread()) or Noting.open(window.recorder)
    window.attach()
    time.sleep(0.1)
    assert where == []  # no model has been called
    torch.nn.Linear(1, 1)(torch.ones(1))
    deadline = time.monotonic() + 20
    while ("close", 0) not in window.recorder.seen and time.monotonic() < deadline:
        time.sleep(0.001)
    assert where == [threading.main_thread()]
    assert window.recorder.seen == [("open", None), ("close", 0)]


def test_under_nsys_a_window_in_seconds_waits_until_the_gpu_is_used(monkeypatch):
    used = threading.Event()
    monkeypatch.setattr(torch.cuda, "is_initialized", used.is_set)
    window = SecondsWindow(Noting(), Settings(window=SECONDS, delay_s=0.0, duration_s=0.02, profiler=NSYS))
    window.attach()
    torch.nn.Linear(1, 1)(torch.ones(1))
    time.sleep(0.2)
    assert window.recorder.seen == []
    used.set()
    deadline = time.monotonic() + 20
    while ("close", 0) not in window.recorder.seen and time.monotonic() < deadline:
        time.sleep(0.001)
    assert window.recorder.seen == [("open", None), ("close", 0)]


def test_a_call_is_made_on_the_main_thread_from_any_other():
    called = []
    thread = threading.Thread(target=call_on_main_thread, args=(lambda: called.append(threading.current_thread()),))
    thread.start()
    thread.join()
    deadline = time.monotonic() + 20
    while not called and time.monotonic() < deadline:
        time.sleep(0.001)
    assert called == [threading.main_thread()]


@pytest.fixture
def cudart(monkeypatch):
    """What is called of a CUDA that this machine may lack, until the test ends."""
    calls = []

    class Cudart:
        def cudaProfilerStart(self):
            calls.append("start")

        def cudaProfilerStop(self):
            calls.append("stop")

    monkeypatch.setattr("kernel_recorder.in_process.windows._Cudart.original", Cudart)
    monkeypatch.setattr(torch.cuda, "cudart", torch.cuda.cudart)
    monkeypatch.setattr(torch.cuda.profiler, "cudart", torch.cuda.profiler.cudart)
    monkeypatch.setattr(torch.cuda.profiler, "check_error", lambda _: None)
    return calls


def test_the_programs_own_calls_open_and_close_the_window(cudart):
    window = ProgramWindow(Noting(), Settings(window=PROGRAM))
    window.attach()
    with torch.cuda.profiler.profile():
        assert window.recorder.is_open
    assert window.recorder.seen == [("open", None), ("close", 0)]
    torch.cuda.cudart().cudaProfilerStart()
    assert cudart == ["start", "stop", "start"]


def test_nsys_is_told_once_more_what_the_program_told_it(cudart, tmp_path):
    recorder = Recorder(
        Notes(tmp_path),
        RankCoordinator(Notes(tmp_path)),
        NsysProfiler(RankCoordinator(Notes(tmp_path))),
        WindowRanges(lambda _: False, None, Closures(None), to_nvtx=True),
    )
    ProgramWindow(recorder, Settings(window=PROGRAM)).attach()
    with torch.cuda.profiler.profile():
        assert recorder.is_open
    assert not recorder.is_open
    assert cudart == ["start", "start", "stop", "stop"]
    assert [note["event"] for note in read_notes(tmp_path)] == ["open", "closed", "saved"]


@pytest.mark.parametrize("skip", [1, 5])
def test_the_median_step_before_the_window_and_in_it_is_known(monkeypatch, skip):
    now = iter([float(second) for second in range(100)])
    monkeypatch.setattr("kernel_recorder.in_process.steps_window.time.perf_counter", lambda: next(now))
    window = StepsWindow(Noting(), Settings(skip=skip, steps=3))
    steps_of(window, *[Optimizer()] * (skip + 3))
    progress = window.progress()
    assert progress.pop("repeated") == [["optimizer", "Optimizer", skip + 3]]
    assert progress == {"reached": skip + 3} | ({"step_before_s": 1.0} if skip > 1 else {}) | {"step_within_s": 1.0}


def test_a_profiler_that_cannot_stop_is_ended_all_the_same(monkeypatch):
    profiler = TorchProfiler()
    profiler.start()
    monkeypatch.setattr(type(profiler._profile), "__exit__", failing_exit)
    with pytest.raises(RuntimeError, match="device-side assert"):
        profiler.stop()
    assert not torch.autograd._profiler_enabled()


def failing_exit(self, *exception):
    raise RuntimeError("CUDA error: device-side assert triggered")  # while it waits for the GPU


class Recording:
    """Stands for the profiler: it can start."""

    is_taken = can_start_again = False

    def start(self):
        pass


def test_no_window_opens_or_closes_inside_a_backward_pass(tmp_path):
    notes = Notes(tmp_path)
    parts = WindowRanges(lambda _: False, None, Closures(None), to_nvtx=False)
    recorder, weight = Recorder(notes, RankCoordinator(notes), Recording(), parts), torch.ones(1, requires_grad=True)
    seen = []

    def step(_):
        recorder.open()
        recorder.close()
        seen.append(recorder.state)

    handle = weight.register_post_accumulate_grad_hook(step)
    weight.sum().backward()
    assert recorder.open()
    weight.sum().backward()
    handle.remove()
    assert seen == ["waiting", "open"]


@pytest.mark.parametrize(("count", "collects"), [(10, True), (3, False)])
def test_a_collection_of_all_garbage_that_is_due_comes_before_the_window(count, collects, monkeypatch):
    done = []
    monkeypatch.setattr(gc, "get_count", lambda: (300, 7, count))
    monkeypatch.setattr(gc, "get_threshold", lambda: (700, 10, 10))
    monkeypatch.setattr(gc, "collect", lambda: done.append(True))
    collect_due_garbage()
    assert bool(done) == collects
