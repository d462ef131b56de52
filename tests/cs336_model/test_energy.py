"""Energy: counters of files and of a made-up NVML, and windows of a model that steps in milliseconds."""

import itertools
import sys
from types import SimpleNamespace

import pytest
import torch

from cs336_model import energy
from cs336_model.variants import Unsupported
from tests.cs336_model.conftest import make_spec


def make_zone(folder, name: str, label: str, value: int, limit: int = 1000):
    zone = folder / name
    zone.mkdir()
    for file, text in {"name": label, "energy_uj": value, "max_energy_range_uj": limit}.items():
        (zone / file).write_text(f"{text}\n")
    return zone / "energy_uj"


def test_all_packages_of_a_processor_count_and_their_files_may_begin_again(tmp_path):
    first = make_zone(tmp_path, "intel-rapl:0", "package-0", 900)
    second = make_zone(tmp_path, "intel-rapl:1", "package-1", 10)
    make_zone(tmp_path, "intel-rapl:0:0", "core", 500)
    read = energy.open_rapl(tmp_path)
    assert read() == 0
    first.write_text("950")
    second.write_text("30")
    assert read() == 70
    first.write_text("20")  # after 1000
    assert read() == 70 + 70


def test_a_host_without_a_counter_says_so(tmp_path):
    with pytest.raises(Unsupported, match="shows no counter of its processor"):
        energy.open_rapl(tmp_path)


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
    assert energy.open_nvml("GPU-1")() == 7000
    with pytest.raises(Unsupported, match="no counter of this GPU \\(Not Supported\\)"):
        energy.open_nvml("GPU-2")
    with pytest.raises(Unsupported, match="UUID"):
        energy.open_nvml(None)


def test_the_tick_is_the_time_between_changes_and_a_stuck_counter_is_refused():
    numbers = iter(range(10**6))
    assert 0.0003 < energy.measure_tick(lambda: next(numbers) // 4, changes=5) < 0.1
    with pytest.raises(Unsupported, match="did not change"):
        energy.measure_tick(lambda: 5, limit_s=0.01)


def test_windows_of_steps_stand_between_idle_ones_of_the_same_length(monkeypatch):
    readings = itertools.count(step=1000)
    monkeypatch.setattr(energy, "open_counter", lambda device: ("made up", lambda: next(readings)))
    result = energy.measure(make_spec(stage="energy", windows=3, window_s=0.05), torch.device("cpu"))
    assert (result.status, result.counter) == ("complete", "made up") and result.tick_s > 0
    assert [window.kind for window in result.windows] == ["idle", "steps", "steps", "steps", "idle"]
    assert all(window.seconds >= 0.05 and window.microjoules == 1000 for window in result.windows)
    assert [window.steps > 0 for window in result.windows] == [False, True, True, True, False]


def test_a_processor_without_a_counter_is_unsupported_before_a_model_is_made(measure, monkeypatch):
    def refuse(device):
        raise Unsupported("energy: this host shows no counter")

    monkeypatch.setattr(energy, "open_counter", refuse)
    result = measure(stage="energy", constructor="nowhere:Model")
    assert (result.status, result.reason, result.windows) == ("unsupported", "energy: this host shows no counter", [])
