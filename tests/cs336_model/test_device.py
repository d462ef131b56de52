"""Which device runs, what is told about it, and where nsys's window begins. The GPU is a stand-in."""

import gc
import hashlib
from types import SimpleNamespace

import pytest
import torch

from cs336_model.cpu import cpu_name
from cs336_model.nvidia_smi import GpuState
from cs336_model.program import device as device_module
from cs336_model.program import lease
from cs336_model.program.device import machine_facts, memory_facts, open_context, resolve_device
from cs336_model.program.windows import open_recording, profiled_window, save_capture

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
UUID = "6b83273f-51cf-d5cd-703d-29ea8dd55b8f"


@pytest.fixture
def one_gpu(monkeypatch):
    properties = SimpleNamespace(uuid=UUID, total_memory=150_109_880_320)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 7)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: 9)


def test_auto_means_the_gpu_where_there_is_one(one_gpu):
    assert resolve_device("auto") == GPU
    assert resolve_device("cpu") == CPU


def test_a_gpu_that_was_not_leased_is_not_worked_on(one_gpu, monkeypatch):
    for name in ("set_device", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, lambda device: None)
    monkeypatch.setattr(lease._LEASE, "gpus", ("GPU-another",))
    with pytest.raises(RuntimeError, match=f"works on GPU-{UUID}, and leased GPU-another: an import asked CUDA"):
        open_context(GPU)
    monkeypatch.setattr(lease._LEASE, "gpus", ("GPU-another", f"GPU-{UUID}"))
    monkeypatch.setattr(torch, "empty", lambda *size, device: None)
    open_context(GPU)


def test_a_gpu_that_is_not_there_is_asked_for_in_vain(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU
    with pytest.raises(RuntimeError, match=r"device is 'cuda', but torch .* sees no GPU"):
        resolve_device("cuda")


def test_a_gpu_is_named_and_its_uuid_only_as_a_hash(one_gpu, monkeypatch):
    asked = []
    state = GpuState("580.95.05", 1980, 3201, 41, [], 1)
    monkeypatch.setattr(device_module, "gpu_state", lambda uuid: asked.append(uuid) or state)
    facts = machine_facts(GPU)
    assert asked == [f"GPU-{UUID}"]
    assert facts["device_name"] == "NVIDIA H200"
    assert facts["gpu_uuid_sha256"] == hashlib.sha256(f"GPU-{UUID}".encode()).hexdigest()
    assert (facts["driver"], facts["sm_clock_mhz"], facts["other_processes"]) == ("580.95.05", 1980, 0)
    assert UUID not in str(facts)


def test_memory_is_the_peak_of_the_allocator_and_unknown_on_a_cpu(one_gpu):
    expected = {"peak_allocated_bytes": 7, "peak_reserved_bytes": 9, "device_total_bytes": 150_109_880_320}
    assert memory_facts(GPU) == expected
    assert memory_facts(CPU) == dict.fromkeys(expected)


def test_a_cpu_has_a_name_and_no_clocks():
    facts = machine_facts(CPU)
    assert facts["device_name"] == cpu_name() != ""
    assert facts["sm_clock_mhz"] is None and facts["gpu_uuid_sha256"] is None and facts["cuda"] is None
    assert facts["float32_matmul_precision"] == "highest", "no TF32"


@pytest.mark.parametrize(("profiler", "apart"), [("none", False), ("nsys", True), ("torch", True)])
def test_full_collections_in_a_window_with_ranges_leave_out_what_there_was_before(profiler, apart):
    gc.unfreeze()  # what tests froze when they were collected
    counts = []
    with profiled_window(profiler, CPU, at_end=lambda: counts.append(gc.get_freeze_count())):
        counts.append(gc.get_freeze_count())
    assert (counts[0] > 0, counts[1]) == (apart, 0)


@pytest.mark.parametrize(
    ("device", "expected"),
    [(GPU, ["idle", "start", "inside", "end", "stop", "closed"]), (CPU, ["inside", "end", "closed"])],
)
def test_nsys_is_told_the_window_on_a_gpu_alone(monkeypatch, tmp_path, device, expected):
    calls = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append("idle"))
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: calls.append("start"))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: calls.append("stop"))
    close = lambda: calls.append("closed")  # noqa: E731
    with profiled_window("nsys", device, lambda: calls.append("end"), close) as recording:
        calls.append("inside")
    save_capture(recording, tmp_path / "capture.sqlite", device)
    assert calls == expected
    assert list(tmp_path.iterdir()) == []


def test_the_range_that_nsys_records_from_is_opened_for_nsys_alone_and_python_searches_what_there_is_no_more(
    monkeypatch,
):
    import nvtx

    calls = []
    monkeypatch.setattr(nvtx, "start_range", lambda name, domain: calls.append((name, domain)) or 7)
    monkeypatch.setattr(nvtx, "end_range", calls.append)
    for profiler in ("none", "torch", "ncu"):
        open_recording(profiler)()
    assert (calls, gc.get_freeze_count()) == ([], 0)
    close = open_recording("nsys")
    try:
        assert calls == [("recording", "cs336_model")] and gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    close()
    assert calls[1:] == [7]


def test_the_full_collection_before_a_window_is_not_in_what_nsys_records(monkeypatch):
    frozen = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    for name in ("start", "stop"):
        monkeypatch.setattr(torch.cuda.profiler, name, lambda: frozen.append(gc.get_freeze_count() > 0))
    with profiled_window("nsys", GPU, at_end=lambda: None):
        pass
    assert frozen == [True, False]
