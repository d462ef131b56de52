"""What the stage memory records, on this machine's GPU if it has one, of a model that takes milliseconds."""

import gzip
import json
import pickle

import pytest
import torch

from cs336_model import memory

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
FRAME = {"filename": "/home/someone/lib/site-packages/torch/nn/linear.py", "name": "forward", "line": 7}


@pytest.fixture
def record(measure, tmp_path):
    """A function that records a run: (its result, its history)."""

    def run(device: str = "cpu", **changes) -> tuple:
        path = tmp_path / "memory_history.json.gz"
        result = measure("--capture", str(path), stage="memory", device=device, **changes)
        return result, json.loads(gzip.decompress(path.read_bytes()))

    return run


def find_peak(history: dict) -> int:
    """The most bytes that are live after an event."""
    changes = [0] * (len(history["time_us"]) + 1)
    rows = history["allocations"]
    for size, made, freed in zip(rows["bytes"], rows["made"], rows["freed"], strict=True):
        changes[made] += size
        changes[len(changes) - 1 if freed is None else freed] -= size
    live = peak = 0
    for change in changes[:-1]:
        live += change
        peak = max(peak, live)
    return peak


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("changes", [{"checkpoint": "1"}, {"mode": "forward"}, {"optimizer": "fused"}])
def test_the_recorded_allocations_reach_the_peak_that_the_allocator_counted_to_the_byte(record, device, changes):
    result, history = record(device, **changes)
    assert result.status == "complete" and find_peak(history) == result.requested_peak_bytes > 0


@pytest.mark.parametrize("device", DEVICES)
def test_allocations_have_their_ranges_and_what_the_model_and_the_optimizer_hold_is_told_by_its_bytes(record, device):
    result, history = record(device)
    names, inside, rows = history["ranges"]["name"], history["ranges"]["inside"], history["allocations"]
    held = dict.fromkeys(("parameters", "gradients", "optimizer state"), 0)
    for size, holder in zip(rows["bytes"], rows["held"], strict=True):
        if holder in held:
            held[holder] += size
    weights = 4 * result.parameters
    assert held == {"parameters": weights, "gradients": weights, "optimizer state": 2 * weights}
    softmax = [size for size, number in zip(rows["bytes"], rows["range"], strict=True)
               if number is not None and names[number] == "computing softmax"]  # fmt: skip
    assert softmax.count(4 * 2 * 2 * 8 * 8) >= 2 * 3, "exponentials of two layers in three steps"
    backward = [number for number, name in enumerate(names) if name == "backward"]
    assert len(backward) == 3 and any(outer in backward for outer in inside)  # parts, again in the backward pass


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU's allocator has a snapshot")
def test_a_snapshot_is_written_beside_the_history(record, tmp_path):
    result, history = record("cuda")
    snapshot = pickle.loads((tmp_path / "memory_snapshot.pickle").read_bytes())
    assert len(snapshot["device_traces"][0]) >= len(history["time_us"])
    assert result.requested_peak_bytes <= result.allocated_peak_bytes <= result.reserved_peak_bytes


def test_a_published_snapshot_has_no_folder_of_this_machine():
    made = memory.strip_paths({"segments": [{"blocks": [{"state": "active", "frames": [FRAME]}], "frames": [FRAME]}]})
    assert "/" not in str(made) and str(made).count("linear.py") == 2
    assert made["segments"][0]["blocks"][0]["state"] == "active"
