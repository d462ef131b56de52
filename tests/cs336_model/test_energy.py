"""Energy: a counter of a made-up NVML, and windows of a model that steps in milliseconds."""

import itertools
import sys
from types import SimpleNamespace

import pytest
import torch

from cs336_model import energy
from cs336_model.variants import Unsupported
from tests.cs336_model.conftest import make_spec

GPU = torch.device("cuda", 0)


def test_a_gpu_is_found_by_its_uuid_and_counted_in_microjoules(monkeypatch):
    class NVMLError(Exception):
        pass

    def find(uuid):
        if uuid != "GPU-1":
            raise NVMLError("Not Supported")
        return uuid

    nvml = SimpleNamespace(
        NVMLError=NVMLError, nvmlInit=lambda: None, nvmlDeviceGetHandleByUUID=find,
        nvmlDeviceGetTotalEnergyConsumption=lambda gpu: 7,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=1))
    assert energy.open_counter(GPU)() == 7000
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=2))
    with pytest.raises(Unsupported, match="no counter of this GPU \\(Not Supported\\)"):
        energy.open_counter(GPU)


def test_windows_of_steps_stand_between_idle_ones_of_the_same_length(monkeypatch):
    readings = itertools.count(step=1000)
    monkeypatch.setattr(energy, "open_counter", lambda device: lambda: next(readings))
    result = energy.measure(make_spec(stage="energy", windows=3, window_s=0.02), torch.device("cpu"))
    assert result.status == "complete"
    assert [window.kind for window in result.windows] == ["idle", "steps", "steps", "steps", "idle"]
    assert all(window.seconds >= 0.02 and window.microjoules == 1000 for window in result.windows)
    assert [window.steps > 0 for window in result.windows] == [False, True, True, True, False]


def test_a_processor_is_unsupported_before_a_model_is_made(measure):
    result = measure(stage="energy", constructor="nowhere:Model")
    assert (result.status, result.windows) == ("unsupported", [])
    assert result.reason == "energy: only a GPU has a counter that is read"
