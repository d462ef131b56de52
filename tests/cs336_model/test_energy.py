"""Windows of energy on a made-up counter that ticks every 100 ms, and the counters of a GPU and a processor."""

import json
import sys
from math import cos, sin
from types import SimpleNamespace

import pytest
import torch

from cs336_model.program import benchmark
from cs336_model.program.energy import Meter, NvmlCounter, RaplCounter, idle_window, measured_tick_s, window_of_steps
from cs336_model.program.without_times import Unsupported

TICK_S = 0.1
CPU = torch.device("cpu")


class MadeUpDevice:
    """Draws 600 W + 80 W sin(t); time passes when somebody sleeps or works, and the counter shows the last tick."""

    name = "made up"

    def __init__(self):
        self.time_s = 0.037

    def now(self) -> float:
        return self.time_s

    def sleep(self, seconds: float) -> None:
        self.time_s += seconds

    def microjoules(self) -> int:
        return int(1e6 * joules_until(int(self.time_s / TICK_S) * TICK_S))

    @property
    def meter(self) -> Meter:
        return Meter(CPU, self, self.now, self.sleep)


def joules_until(second: float) -> float:
    """The integral of the power from 0."""
    return 600 * second + 80 * (1 - cos(second))


def test_the_tick_of_a_counter_is_the_time_between_its_changes():
    device = MadeUpDevice()
    assert measured_tick_s(device.meter) == pytest.approx(TICK_S, rel=0.005)
    assert device.time_s < 2


def test_a_counter_that_stands_still_counts_nothing():
    device = MadeUpDevice()
    still = SimpleNamespace(name="broken", microjoules=lambda: 7)
    with pytest.raises(Unsupported, match=r"energy: the counter did not change for 3 s \(broken\)"):
        measured_tick_s(Meter(CPU, still, device.now, device.sleep))


@pytest.mark.parametrize("step_s", [0.018, 0.4])
def test_a_window_of_steps_holds_the_integral_of_the_power_to_a_tick_at_its_ends(step_s):
    device, begin_s = MadeUpDevice(), 0.037
    window = window_of_steps(device.meter, 5.0, lambda: device.sleep(step_s))
    assert 5.0 <= window["seconds"] < 5.0 + step_s and window["seconds"] == pytest.approx(window["steps"] * step_s)
    expected = joules_until(begin_s + window["seconds"]) - joules_until(begin_s)
    assert abs(1e-6 * window["microjoules"] - expected) <= 680 * TICK_S
    assert expected == pytest.approx(600 * window["seconds"] - 80 * (cos(device.time_s) - cos(begin_s)))
    assert abs(sin(device.time_s)) <= 1  # the power stays between 520 W and 680 W


def test_many_windows_are_right_on_average_since_no_end_of_them_is_chosen_by_the_counter():
    device, error = MadeUpDevice(), 0.0
    for _ in range(60):
        before = device.time_s
        joules = 1e-6 * window_of_steps(device.meter, 5.0, lambda: device.sleep(0.0173))["microjoules"]
        error += joules / (joules_until(device.time_s) - joules_until(before)) - 1
    assert abs(error / 60) < 0.001


def test_an_idle_window_has_no_steps_and_its_device_sleeps():
    device = MadeUpDevice()
    window = idle_window(device.meter, 5.0)
    assert (window["kind"], window["steps"], window["seconds"]) == ("idle", 0, pytest.approx(5.0))


def powercap(folder, *values: int, name: str = "package") -> list:
    """Made-up powercap zones of so many packages, and a part of the first, which has a zone of its own."""
    files = []
    for number, value in enumerate(values):
        zone = folder / f"intel-rapl:{number}"
        zone.mkdir()
        (zone / "name").write_text(f"{name}-{number}\n")
        (zone / "max_energy_range_uj").write_text("1000\n")
        (zone / "energy_uj").write_text(f"{value}\n")
        files.append(zone / "energy_uj")
    part = folder / "intel-rapl:0:0"
    part.mkdir()
    (part / "name").write_text("core\n")
    return files


def test_rapl_adds_its_packages_up_and_goes_on_where_one_wraps_around(tmp_path):
    first, second = powercap(tmp_path, 100, 950)
    counter = RaplCounter(tmp_path)
    first.write_text("160")
    second.write_text("40")
    assert counter.microjoules() == 60 + (1000 - 950 + 40)
    first.write_text("161")
    assert counter.microjoules() == 151


def test_a_host_without_a_package_says_so(tmp_path):
    powercap(tmp_path, 1, name="psys")
    with pytest.raises(Unsupported, match="energy: this host shows no counter of its CPU"):
        RaplCounter(tmp_path)


def test_a_counter_for_root_alone_says_what_to_do(tmp_path, monkeypatch):
    (file,) = powercap(tmp_path, 1)

    def refused(path, *arguments, **options):
        if path == file:
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    real = type(file).read_text
    monkeypatch.setattr(type(file), "read_text", refused)
    with pytest.raises(Unsupported, match=r"only root may read energy_uj in .*: sudo chmod a"):
        RaplCounter(tmp_path)


class NVMLError(Exception):
    pass


def nvml(**changes):
    """A stand-in for pynvml that knows one GPU, which has taken 5 J."""

    def by_uuid(uuid: str) -> str:
        if uuid != "GPU-7":
            raise NVMLError("Not Found")
        return "the seventh"

    reads = {"nvmlDeviceGetTotalEnergyConsumption": lambda gpu: {"the seventh": 5000}[gpu]}
    whole = {"NVMLError": NVMLError, "nvmlInit": lambda: None, "nvmlDeviceGetHandleByUUID": by_uuid} | reads
    return SimpleNamespace(**(whole | changes))


def test_nvml_is_asked_for_the_gpu_of_the_process_by_its_uuid(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    assert NvmlCounter("GPU-7").microjoules() == 5_000_000
    with pytest.raises(Unsupported, match=r"NVML has no energy counter of this GPU \(Not Found\)"):
        NvmlCounter("GPU-0")


def test_without_nvmls_binding_the_package_to_install_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unsupported, match="pip install nvidia-ml-py"):
        NvmlCounter("GPU-7")
    with pytest.raises(Unsupported, match=r"2\.5"):
        NvmlCounter(None)


def test_the_program_writes_its_windows_and_the_same_losses_as_any_other_process(run_benchmark, tmp_path, monkeypatch):
    device = BusyDevice()
    monkeypatch.setattr(benchmark, "energy_counter", lambda _: device)
    monkeypatch.setattr(benchmark, "Meter", lambda *_: device.meter)
    path = tmp_path / "energy.json"
    result = run_benchmark("--profiler", "energy", "--capture", str(path), "--windows", "3", "--window-s", "0.6")
    written = json.loads(path.read_text())
    assert [window["kind"] for window in written["windows"]] == ["idle", "steps", "steps", "steps", "idle"]
    assert all(window["steps"] == 2 for window in written["windows"][1:4])
    assert set(written["windows"][0]["begin"]) == {
        "temperature_c", "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons",
    }  # fmt: skip
    assert result["status"] == "complete" and len(result["losses"]) == 3  # one warm-up step, two measured ones


class BusyDevice(MadeUpDevice):
    """A quarter of a second passes whenever somebody asks for the time."""

    def now(self) -> float:
        self.sleep(0.25)
        return super().now()


def test_without_a_counter_the_run_says_why_before_a_model_is_made(run_benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "make_subject", lambda *_: pytest.fail("the model was made"))
    monkeypatch.setattr(benchmark, "energy_counter", lambda _: RaplCounter(tmp_path))
    result = run_benchmark("--profiler", "energy", "--capture", str(tmp_path / "energy.json"))
    assert result["status"] == "unsupported"
    assert result["reason"].startswith("energy: this host shows no counter of its CPU")
