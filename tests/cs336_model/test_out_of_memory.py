"""Out of memory is a result with its circumstances; nothing else is."""

import pytest
import torch

from cs336_model.program.out_of_memory import out_of_memory_record, requested_bytes
from tests.cs336_model.other_models import RaisingModel

MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has a total capacity of 139 GiB of which 1.25 GiB is free."
    " Including non-PyTorch memory, this process has 138.55 GiB memory in use."
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (MESSAGE, 2_684_354_560),
        ("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 139.81 GiB total capacity)", 20_971_520),
        ("HIP out of memory. Tried to allocate 512 bytes.", 512),
        ("CUDA out of memory. Tried to allocate more than 1EB memory.", None),
        ("out of memory", None),
    ],
)
def test_the_request_is_read_from_torchs_message(message, expected):
    assert requested_bytes(message) == expected


def test_what_the_device_has_comes_from_the_driver(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10, 100))
    assert out_of_memory_record(torch.OutOfMemoryError(MESSAGE), "initialise") == {
        "during": "initialise",
        "requested_bytes": 2_684_354_560,
        "free_bytes": 10,
        "total_bytes": 100,
    }


def test_a_constructor_that_runs_out_of_memory_gives_a_result(run_benchmark, their_module):
    def constructor(**sizes):
        raise torch.OutOfMemoryError(MESSAGE)

    their_module.Huge = constructor
    result = run_benchmark(constructor="their_module:Huge")
    assert result["status"] == "out_of_memory"
    assert result["out_of_memory"]["during"] == "initialise"
    assert result["out_of_memory"]["requested_bytes"] == 2_684_354_560
    assert result["step_seconds"] == [] and result["losses"] == []
    assert result["machine"]["device"] == "cpu"


@pytest.mark.parametrize(
    ("at", "during"), [(0, "warmup step 0: forward"), (1, "measure step 0: forward"), (2, "measure step 1: forward")]
)
def test_the_phase_that_ran_out_of_memory_is_named(run_benchmark, their_module, at, during):
    their_module.Growing = lambda **sizes: RaisingModel(torch.OutOfMemoryError(MESSAGE), at)
    result = run_benchmark(constructor="their_module:Growing")
    assert result["status"] == "out_of_memory"
    assert result["out_of_memory"]["during"] == during
    assert result["step_seconds"] == [], "times of steps before the failure are no result"


def test_out_of_memory_under_torchs_profiler_leaves_no_capture(run_benchmark, their_module, tmp_path):
    their_module.Growing = lambda **sizes: RaisingModel(torch.OutOfMemoryError(MESSAGE), 2)
    capture = tmp_path / "capture.sqlite"
    result = run_benchmark("--profiler", "torch", "--capture", str(capture), constructor="their_module:Growing")
    assert result["status"] == "out_of_memory"
    assert not capture.exists()


def test_any_other_error_is_no_result(run_benchmark, their_module, tmp_path):
    their_module.Broken = lambda **sizes: RaisingModel(RuntimeError("CUDA error: an illegal memory access"), 1)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        run_benchmark(constructor="their_module:Broken")
    assert list(tmp_path.iterdir()) == []
