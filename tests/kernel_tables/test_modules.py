"""Modules from the stacks of a trace, compared with ranges that marks opened in the same program; replayed graphs."""

import copy
import gzip
import json
import sqlite3
from collections import defaultdict
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.checkpoint import checkpoint

import kernel_tables
from kernel_tables.marks import Emitter, Marker, ModuleParts, follow_backward, record_function_emitter
from tests.kernel_tables.kineto_events import event, written
from tests.kernel_tables.test_trace import paths_of

CAPTURES = Path(__file__).parents[1] / "captures"
MARK = "mark:"  # what tells the ranges of marks from those of the program


class Block(nn.Module):
    def __init__(self, size, reentrant):
        super().__init__()
        self.norm, self.reentrant = nn.LayerNorm(size), reentrant
        self.mixer = nn.Sequential(nn.Linear(size, size), nn.ReLU(), nn.Linear(size, size))

    def forward(self, x):
        if self.reentrant is None:
            return x + self.mixer(self.norm(x))
        return x + checkpoint(self.mixer, self.norm(x), use_reentrant=self.reentrant)


class Net(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8, one) for one in reentrant])
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
    """The JSON of a traced training with both stacks and ranges of marks."""
    emitter = record_function_emitter()
    marker = Marker(Emitter(lambda name: emitter.push(MARK + name), emitter.pop))
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
    return json.loads(path.read_text())


@pytest.mark.parametrize(("reentrant", "twice"), [([None, False, True], False), ([None], True)])
def test_stacks_tell_the_modules_that_ranges_tell_forward_backward_and_computed_again(tmp_path, reentrant, twice):
    torch.manual_seed(0)
    events = traced(tmp_path / "trace.json", Net(reentrant), twice=twice)["traceEvents"]
    unmarked = [one for one in events if not str(one["name"]).startswith(MARK)]
    marked = [
        one | {"name": str(one["name"]).removeprefix(MARK)} for one in events if one.get("cat") != "python_function"
    ]
    by_stacks, by_marks = (paths_of(written(tmp_path, *some)) for some in (unmarked, marked))
    assert by_stacks == by_marks
    modules = {name for *_, path in by_stacks for name in path}
    assert {"step", "backward", "Net", "Block", "Linear", "LayerNorm", "Sequential", "GELU"} <= modules
    assert ("recomputation" in modules) == (len(reentrant) > 1)


@pytest.mark.parametrize(("numbers", "found"), [((7, 8), ["First", "Second"]), ((7, 7), ["step", "step"])])
def test_of_several_threads_the_numbers_tell_which_one_a_node_differentiates(tmp_path, numbers, found):
    events = [event("user_annotation", "step", 0, 200)]
    for place, (number, module) in enumerate(zip(numbers, ("First_0", "Second_0"), strict=True)):
        start, launch = 100 + 20 * place, {"correlation": place + 1}
        node, kernel = {"Sequence number": number, "Fwd thread id": place + 1}, {"device": 0, "stream": 7} | launch
        events += [
            event("python_function", f"nn.Module: {module}", 1, 50, 11 + place),
            event("cpu_op", "aten::mm", 10, 20, 11 + place, **{"Sequence number": number, "Fwd thread id": 0}),
            event("cpu_op", "autograd::engine::evaluate_function: MmBackward0", start, 10, 13, **node),
            event("cuda_runtime", "cudaLaunchKernel", start + 2, 3, 13, **launch),
            event("kernel", "k", start + 4, 5, 7, 0, **kernel),
        ]
    assert [path[-1] for *_, path in paths_of(written(tmp_path, *events))] == found


def test_layers_have_the_name_of_their_class_and_wrappers_have_none(tmp_path):
    calls = ["DistributedDataParallel_0", "Net_0", "FSDPBlock_11", "Sequential_2", "Sequential_3", "Linear_120"]
    events = [event("python_function", f"nn.Module: {name}", place, 90 - 2 * place) for place, name in enumerate(calls)]
    events += [event("cpu_op", "aten::mm", 20, 5)]
    assert [path for *_, path in paths_of(written(tmp_path, *events))] == [("Net", "Block", "Sequential", "Linear")]


# Replayed CUDA graphs, of which PyTorch's profiler records no nodes


@pytest.fixture(scope="module")
def replays(tmp_path_factory) -> tuple[Path, list[dict]]:
    """Five replays of a training step of a small GPT, and its capture, as nsys recorded them with nodes; and what
    PyTorch's profiler writes of them: calls, activities with the correlation of their launch, annotations."""
    path = tmp_path_factory.mktemp("replayed") / "capture.sqlite"
    with gzip.open(CAPTURES / "graph_replayed_2025.3.2.sqlite.gz") as packed:
        path.write_bytes(packed.read())
    with closing(sqlite3.connect(path)) as database:
        strings = dict(database.execute("SELECT id, value FROM StringIds"))
        where = "start, end, {}, correlationId, {} FROM CUPTI_ACTIVITY_KIND_{}"
        statements = [
            "SELECT 'cuda_runtime', nameId, " + where.format("globalTid", 0, "RUNTIME"),
            "SELECT 'kernel', demangledName, " + where.format(7, "streamId", "KERNEL"),
            "SELECT 'gpu_memcpy', 'Memcpy DtoD', " + where.format(7, "streamId", "MEMCPY"),
            "SELECT 'gpu_memset', 'Memset', " + where.format(7, "streamId", "MEMSET"),
            "SELECT 'user_annotation', ifnull(text, textId), start, end, globalTid, 0, 0 FROM NVTX_EVENTS"
            " WHERE end IS NOT NULL",
        ]
        rows = database.execute(" UNION ALL ".join(statements))
        return path, [
            event(
                category, strings.get(name, str(name)), start / 1000, (end - start) / 1000, thread & 0xFFFFFF,
                correlation=number, stream=stream, device=0,
            )
            for category, name, start, end, thread, number, stream in rows
        ]  # fmt: skip


def kernels_by_range(path: Path) -> dict[tuple[str, str], int]:
    with kernel_tables.read(path) as profile:
        return profile.kernels("measured").set_index(["range", "kernel"])["launches"].to_dict()


def test_every_replayed_kernel_has_the_range_that_nsys_gives_it_by_its_node(tmp_path, replays):
    capture, events = replays
    path = written(tmp_path, *events)
    kernels = kernels_by_range(path)
    assert kernels == kernels_by_range(capture)
    assert sum("backward" in text for text, _ in kernels) > 20
    with kernel_tables.read(path) as profile:
        assert "nodes_not_recorded" not in [found.code for found in profile.check()]


def changed(events: list[dict], how: str) -> list[dict]:
    """The events of the replays, changed so that no capture certainly explains them."""
    events = copy.deepcopy(events)
    launches = {one["args"]["correlation"] for one in events if "GraphLaunch" in one["name"]}
    ran = [one for one in events if one["cat"] == "kernel" and one["args"]["correlation"] in launches]
    begin, end = (next(one for one in events if f"Stream{word}Capture" in one["name"]) for word in ("Begin", "End"))
    calls = [one for one in events if one["cat"] == "cuda_runtime" and begin["ts"] <= one["ts"] <= end["ts"]]
    if how == "a second capture":
        length_us = end["ts"] - begin["ts"] + 100
        for one in calls:
            number = one["args"]["correlation"] + 10_000_000
            events.append(one | {"ts": one["ts"] - length_us, "args": {"correlation": number}})
    elif how == "kernels side by side":
        ran[7]["dur"] += 50
    else:
        max(ran, key=lambda one: one["ts"])["name"] = "another kernel in the last replay"
    return events


@pytest.mark.parametrize("how", ["a second capture", "kernels side by side", "another kernel"])
def test_replays_that_no_capture_certainly_explains_stay_with_their_launch(tmp_path, replays, how):
    path = written(tmp_path, *changed(replays[1], how))
    assert {text for text, _ in kernels_by_range(path)} == {"measured"}
    with kernel_tables.read(path) as profile:
        assert "nodes_not_recorded" in [found.code for found in profile.check()]


def captured(start_us: int, name: str) -> list[dict]:
    """The capture of two launches, each in a range."""
    calls = {0: "StreamBeginCapture", 12: "LaunchKernel", 22: "LaunchKernel", 30: "StreamEndCapture"}
    events = [event("user_annotation", f"{name}{one}", start_us + 10 * one, 8) for one in (1, 2)]
    return events + [
        event("cuda_runtime", f"cuda{call}", start_us + place, 2, correlation=start_us + place)
        for place, call in calls.items()
    ]


def replay(number: int, graph: int, *nodes: int) -> list[dict]:
    """A launch of a graph, and a kernel of each of the nodes, all at once."""
    ids = {"device": 0, "correlation": number, "graph id": graph}
    kernels = [
        event("kernel", f"k{node}", 1000 * number + 10 + lane, 50, stream=lane, **ids, **{"graph node id": node})
        for lane, node in enumerate(nodes)
    ]
    return [event("cuda_runtime", "cudaGraphLaunch", 1000 * number, 5, correlation=number), *kernels]


@pytest.mark.parametrize(
    ("graphs", "expected"),
    [
        ([(3, 31, 32), (3, 31, 32), (4, 41, 42)], {"k31": "a1", "k32": "a2", "k41": "b1", "k42": "b2"}),
        ([(4, 1, 2), (3, 1, 2)], {"k1": "a1 b1", "k2": "a2 b2"}),  # numbered by graph
        ([(3, 31, 32, 32, 32), (4, 41), (4, 41, 42), (4, 42)], {"k31": "a1", "k32": "a2", "k41": "b1", "k42": "b2"}),
    ],
)
def test_ids_tell_replays_of_equal_captures_and_of_loops_and_conditions(tmp_path, graphs, expected):
    events = captured(100, "a") + captured(200, "b")
    for number, graph in enumerate(graphs, 1):
        events += replay(number, *graph)
    found = defaultdict(set)
    for name, _, path in paths_of(written(tmp_path, *events)):
        found[name].add(path[-1])
    assert found == {name: set(ranges.split()) for name, ranges in expected.items()}
