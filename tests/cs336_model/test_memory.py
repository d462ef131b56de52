"""What the stage memory records, on this machine's GPU if it has one, of a model that takes milliseconds."""

import gzip
import json
import pickle

import pytest
import torch

from cs336_model import memory
from tests.cs336_model.conftest import make_spec

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def record(tmp_path, device: str = "cpu", **changes) -> tuple:
    """(the result of a recorded run, its history)."""
    path = tmp_path / "memory_history.json.gz"
    result = memory.measure(make_spec(stage="memory", device=device, **changes), torch.device(device, 0), path)
    return result, json.loads(gzip.decompress(path.read_bytes()))


def live_bytes(history: dict) -> list[int]:
    """The bytes that are live after each event."""
    changes = [0] * (len(history["time_us"]) + 1)
    rows = history["allocations"]
    for size, made, freed in zip(rows["bytes"], rows["made"], rows["freed"], strict=True):
        changes[made] += size
        changes[len(changes) - 1 if freed is None else freed] -= size
    live = [0]
    for change in changes[:-1]:
        live.append(live[-1] + change)
    return live[1:]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("changes", [{"checkpoint": "1"}, {"mode": "forward"}, {"optimizer": "fused"}])
def test_the_recorded_allocations_reach_the_peak_that_the_allocator_counted_to_the_byte(tmp_path, device, changes):
    result, history = record(tmp_path, device, **changes)
    assert result.status == "complete" and max(live_bytes(history)) == result.requested_peak_bytes > 0


@pytest.mark.parametrize("device", DEVICES)
def test_what_the_model_and_the_optimizer_hold_is_told_by_its_bytes(tmp_path, device):
    result, history = record(tmp_path, device)
    rows = history["allocations"]
    held = dict.fromkeys(("parameters", "gradients", "optimizer state"), 0)
    for size, holder in zip(rows["bytes"], rows["held"], strict=True):
        if holder in held:
            held[holder] += size
    weights = 4 * result.parameters
    assert held == {"parameters": weights, "gradients": weights, "optimizer state": 2 * weights}


@pytest.mark.parametrize("device", DEVICES)
def test_an_allocation_has_its_range_its_operator_and_the_line_that_called_it(tmp_path, device):
    _, history = record(tmp_path, device)
    names, rows = history["ranges"]["name"], history["allocations"]
    made = [(names[number], operator, line) for number, operator, line in zip(
        rows["range"], rows["operator"], rows["line"], strict=True) if number is not None]  # fmt: skip
    assert any(name == "computing softmax" and operator == "aten::exp" and line.startswith("cs336_model/model.py:")
               for name, operator, line in made)  # fmt: skip
    inside = history["ranges"]["inside"]
    backward = [number for number, name in enumerate(names) if name == "backward"]
    assert len(backward) == 3 and any(outer in backward for outer in inside)  # parts, again in the backward pass


def test_types_are_those_of_the_precision_and_modules_of_a_list_share_a_row(tmp_path):
    result, _ = record(tmp_path, precision="bf16")
    rows = {row["module"]: row for row in result.dtypes}
    query = rows["blocks.*.attention.query"]
    expected = {"modules": 2, "parameters": "float32", "output": "bfloat16", "gradients": "float32"}
    assert expected.items() <= query.items()
    assert (rows["(logits)"]["output"], rows["(loss)"]["output"]) == ("bfloat16", "float32")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU's allocator has a snapshot")
def test_a_snapshot_is_written_beside_the_history(tmp_path):
    result, history = record(tmp_path, "cuda")
    snapshot = pickle.loads((tmp_path / "memory_snapshot.pickle").read_bytes())
    assert len(snapshot["device_traces"][0]) >= len(history["time_us"])
    assert result.requested_peak_bytes <= result.allocated_peak_bytes <= result.reserved_peak_bytes


FRAME = {"filename": "/home/someone/lib/site-packages/torch/nn/linear.py", "name": "forward", "line": 7}


def trace_entry(action: str, address: int, size: int, time_us: int) -> dict:
    return {"action": action, "addr": address, "size": size, "time_us": time_us, "stream": 0, "frames": [FRAME]}


def test_a_gpu_trace_becomes_events_with_their_operators_and_a_request_for_release_is_none():
    recorder = memory.GpuRecorder(torch.device("cuda", 0))
    recorder.counts, recorder.operators = {}, [(1, 2, "aten::mm", "model.py:3")]
    actions = ["segment_alloc", "alloc", "alloc", "free_requested", "free_completed"]
    trace = [trace_entry(action, 64 * (number == 2), 8, number) for number, action in enumerate(actions)]
    recorder.snapshot = {"device_traces": [trace]}
    events, _, _ = recorder.read()
    assert [(event.allocates, event.address, event.operator, event.line) for event in events] == [
        (True, 0, None, None), (True, 64, "aten::mm", "model.py:3"), (False, 0, None, None),
    ]  # fmt: skip


def test_a_published_snapshot_has_no_folder_of_this_machine_and_only_what_is_drawn():
    block = {"address": 1, "size": 2, "requested_size": 2, "state": "active", "frames": [FRAME], "history": ["/root"]}
    segment = {"address": 1, "total_size": 2, "blocks": [block], "frames": [FRAME]}
    made = memory.strip_snapshot({
        "segments": [segment], "device_traces": [[trace_entry("alloc", 1, 2, 3) | {"user": "someone"}]],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "/home/someone"},
    })  # fmt: skip
    text = str(made)
    assert "someone" not in text and "/root" not in text and text.count("torch/nn/linear.py") == 3
    assert made["segments"][0]["blocks"][0]["state"] == "active"
