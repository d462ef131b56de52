"""What a measurement leaves on its GPU when it gives the lease back."""

import gc
import json

import pytest
import torch

from cs336_model.program import benchmark
from cs336_model.program import device as device_module
from cs336_model.program.process import Progress
from cs336_model.program.spec import read_spec
from tests.cs336_model.specs import changed


def parameters_alive() -> int:
    return sum(type(value) is torch.nn.Parameter for value in gc.get_objects())


@pytest.fixture
def nothing_collected():
    gc.collect()  # not frozen: the profiled window unfreezes all objects, and then parameters of earlier tests count
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("profiler", ["none", "nsys"])
@pytest.mark.parametrize(
    "changes",
    [
        {}, {"mode": "forward"}, {"mode": "forward_backward"}, {"precision": "bf16"}, {"attention": "flash"},
        {"checkpoint": "1"},
    ],
    ids=str,
)  # fmt: skip
def test_a_model_is_gone_without_a_search_for_garbage_but_for_circles_of_checkpoints(
    spec_values, monkeypatch, nothing_collected, profiler, changes
):
    before, left = parameters_alive(), []
    monkeypatch.setattr(benchmark, "leave_device", lambda device: left.append(parameters_alive() - before))
    spec = read_spec(json.dumps(changed(spec_values, **changes)))
    result = benchmark.run(spec, benchmark.RunState(profiler), Progress())
    assert result["status"] == "complete"
    assert left[0] == 0 or "checkpoint" in changes
    gc.collect()
    assert parameters_alive() == before


@pytest.mark.parametrize(
    ("left", "collections"), [(device_module.MAX_REMAINING_BYTES, 0), (device_module.MAX_REMAINING_BYTES + 1, 1)]
)
def test_garbage_is_collected_only_where_tensors_are_left_on_the_gpu(monkeypatch, left, collections):
    did = []
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: left)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: did.append("emptied"))
    monkeypatch.setattr(gc, "collect", lambda: did.append("collected"))
    monkeypatch.setattr(device_module, "give_back_lease", lambda: did.append("given back"))
    device_module.leave_device(torch.device("cuda", 0))
    assert did == [*["collected"] * collections, "emptied", "given back"]
