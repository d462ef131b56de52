"""Modules from the stacks of a trace, compared with ranges that range_marks opened in the same program."""

import json

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

from kernel_tables.trace import Trace
from range_marks.backward import follow_backward
from range_marks.marker import Marker, record_function_emitter
from range_marks.module_parts import ModuleParts
from tests.kernel_tables.kineto_events import event

MARK = "mark:"  # what tells the ranges of range_marks from those of the program


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return 2 * x * gradient


class Mixer(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.first, self.second = nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, x):
        return Squared.apply(self.second(self.first(x).relu()))


class Block(nn.Module):
    def __init__(self, size, reentrant):
        super().__init__()
        self.norm, self.mixer, self.reentrant = nn.LayerNorm(size), Mixer(size), reentrant

    def forward(self, x):
        if self.reentrant is None:
            return x + self.mixer(self.norm(x))
        return x + checkpoint(self.mixer, self.norm(x), use_reentrant=self.reentrant)


class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8, reentrant) for _ in range(3)])
        self.head = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, x):
        for block in self.blocks:
            x.detach().logical_not()  # makes no node, so that it has the number of the block's first one
            x = block(x)
        return self.head(x), x.mean()


def train(model, steps=2, *, twice=False):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        with record_function("step"):
            optimizer.zero_grad()
            for _ in range(2):  # gradients of two batches are added up
                output, mean = model(torch.ones(5, 8))
                loss = mean if twice else output.square().sum() + mean  # the first and the last node are of the model
                for is_last in (False, True) if twice else (True,):
                    with record_function("backward"):
                        loss.backward(retain_graph=not is_last)
            optimizer.step()


def traced(path, model, **options):
    """The JSON of a traced training with both stacks and ranges of range_marks."""
    marker = Marker(record_function_emitter(lambda name: MARK + name))
    parts = ModuleParts(marker.part, lambda module: type(module).__name__)
    train(model, 1)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True) as recording:
        parts.begin()
        follow_backward(marker)
        try:
            train(model, **options)
        finally:
            follow_backward(None)
            parts.end()
    recording.export_chrome_trace(str(path))
    return json.loads(path.read_text(), parse_float=str)


def written(path, content, events):
    """The trace with other events; times as they were written."""
    text = json.dumps(content | {"traceEvents": events})
    path.write_text(text)
    return path


def paths_of(path):
    """(name, start, path of ranges) of all that took time, in order."""
    with Trace(path) as trace:
        table = trace.activities().sort_values(["start_ns", "end_ns"])
        paths = [trace.paths[number] for number in table["path_id"]]
    return list(zip(table["name"], table["duration_ns"], paths, strict=True))


@pytest.mark.parametrize(("reentrant", "twice"), [(None, False), (None, True), (False, False), (True, False)])
def test_stacks_tell_the_modules_that_ranges_tell_forward_backward_and_computed_again(tmp_path, reentrant, twice):
    torch.manual_seed(0)
    content = traced(tmp_path / "both.json", Net(reentrant), twice=twice)
    unmarked = [event for event in content["traceEvents"] if not str(event["name"]).startswith(MARK)]
    marked = [
        event | {"name": str(event["name"]).removeprefix(MARK)}
        for event in content["traceEvents"]
        if event.get("cat") != "python_function"
    ]
    by_stacks = paths_of(written(tmp_path / "stacks.json", content, unmarked))
    by_marks = paths_of(written(tmp_path / "marks.json", content, marked))
    assert by_stacks == by_marks
    modules = {name for *_, path in by_stacks for name in path}
    assert {"step", "backward", "Net", "Block", "Mixer", "Linear", "LayerNorm", "Sequential", "GELU"} <= modules
    assert ("recomputation" in modules) == (reentrant is not None)


def two_threads():
    """Two threads that each run a module, with the same numbers, and the backward pass of both on a third thread."""
    events = []
    for thread, module in ((11, "First_0"), (12, "Second_0")):
        events += [
            event("python_function", f"nn.Module: {module}", 0, 50, thread),
            event("cpu_op", "aten::mm", 10, 20, thread, **{"Sequence number": 7, "Fwd thread id": 0}),
        ]
    for place, thread in enumerate((12, 11)):
        start, numbers = 100 + 20 * place, {"Sequence number": 7, "Fwd thread id": place + 1}
        node = "autograd::engine::evaluate_function: MmBackward0"
        call, kernel = {"correlation": place}, {"device": 0, "stream": 7, "correlation": place}
        events += [
            event("cpu_op", node, start, 10, 13, **numbers),
            event("cpu_op", "MmBackward0", start + 1, 8, 13, **numbers),
            event("cuda_runtime", "cudaLaunchKernel", start + 2, 3, 13, **call),
            event("kernel", f"of_thread_{thread}", start + 4, 5, 7, 0, **kernel),
        ]
        arrow = {"cat": "fwdbwd", "name": "fwdbwd", "id": place, "pid": 5}
        events += [arrow | {"ph": "s", "tid": thread, "ts": 10}, arrow | {"ph": "f", "tid": 13, "ts": start + 1}]
    return events


def test_of_threads_with_the_same_numbers_the_arrows_tell_which_one_a_node_differentiates(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": two_threads()}))
    modules = {name: path[-1] for name, _, path in paths_of(path)}
    assert modules == {"of_thread_11": "First", "of_thread_12": "Second"}


def test_layers_have_the_name_of_their_class_and_wrappers_have_none(tmp_path):
    calls = ["DistributedDataParallel_0", "Net_0", "FSDPBlock_11", "Sequential_2", "Sequential_3", "Linear_120"]
    events = [event("python_function", f"nn.Module: {name}", place, 90 - 2 * place) for place, name in enumerate(calls)]
    events += [event("cpu_op", "aten::mm", 20, 5)]
    path = written(tmp_path / "trace.json", {}, events)
    assert [path for *_, path in paths_of(path)] == [("Net", "Block", "Sequential", "Linear")]
