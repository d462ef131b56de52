"""The energy of a device: its counters, and windows of seconds in which a model steps, or nothing runs.

The counter is NVML's for a GPU, and RAPL's for the packages of a CPU. It is read as integer microjoules that only grow.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cs336_model import ranges
from cs336_model.nvidia_smi import GpuState, gpu_state
from cs336_model.program.device import gpu_uuid, synchronize
from cs336_model.program.process import Progress
from cs336_model.program.steps import PhaseClock, Subject, run_steps
from cs336_model.program.without_times import Unsupported

POWERCAP = Path("/sys/class/powercap")
TICKS, MAX_TICK_S, POLL_S = 10, 3.0, 0.0002  # to measure the tick: the time between changes of the counter
IDLE, STEPS = "idle", "steps"  # kinds of windows
# fields of GpuState that are recorded at both ends of a window
STATE_FIELDS = ("temperature_c", "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons")


class NvmlCounter:
    """The energy of one GPU since the driver was loaded, by nvmlDeviceGetTotalEnergyConsumption."""

    name = "NVML, the whole GPU"

    def __init__(self, uuid: str | None) -> None:
        """Raises Unsupported if the driver's counter of the GPU with this UUID cannot be read."""
        if uuid is None:
            raise Unsupported("energy", "this PyTorch does not report the GPU's UUID; 2.5 and newer do")
        try:
            import pynvml
        except ImportError:
            raise Unsupported("energy", "NVML's Python binding is missing: pip install nvidia-ml-py") from None
        try:
            pynvml.nvmlInit()
            # by its UUID: NVML numbers the GPUs of the host, CUDA_VISIBLE_DEVICES those of the process
            self._gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            self._read = pynvml.nvmlDeviceGetTotalEnergyConsumption
            self._read(self._gpu)
        except pynvml.NVMLError as error:
            raise Unsupported("energy", f"NVML has no energy counter of this GPU ({error})") from error

    def microjoules(self) -> int:
        return 1000 * self._read(self._gpu)


class RaplCounter:
    """The energy of all CPU packages of a host, whatever runs on them, by Linux's powercap files. The numbers in these
    files begin again at 0 after `max_energy_range_uj`."""

    name = "RAPL, the processor's packages"

    def __init__(self, folder: Path = POWERCAP) -> None:
        """Raises Unsupported if the host shows no package, or not to this user."""
        zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _text(zone / "name").startswith("package")]
        if not zones:
            raise Unsupported("energy", f"this host shows no counter of its CPU (no package in {folder.name})")
        self._files = [zone / "energy_uj" for zone in zones]
        try:
            self._last_values = [int(file.read_text()) for file in self._files]
            self._ranges = [int((zone / "max_energy_range_uj").read_text()) for zone in zones]
        except PermissionError:
            raise Unsupported("energy", f"only root may read energy_uj in {folder.name}: sudo chmod a+r it") from None
        self._total = 0

    def microjoules(self) -> int:
        """Microjoules since this object was made. Read it every minute: files begin again at 0 after minutes."""
        for index, file in enumerate(self._files):
            value = int(file.read_text())
            change = value - self._last_values[index]
            self._total += change if change >= 0 else change + self._ranges[index]
            self._last_values[index] = value
        return self._total


EnergyCounter = NvmlCounter | RaplCounter


def energy_counter(device: torch.device) -> EnergyCounter:
    """The counter of this device. Raises Unsupported if there is none."""
    return NvmlCounter(gpu_uuid(device)) if device.type == "cuda" else RaplCounter()


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""


@dataclass(frozen=True)
class EnergyPlan:
    """Windows of steps. One idle window of `min_s` comes before them and one after them: the model is on the device,
    and nothing runs."""

    windows: int  # with steps
    min_s: float  # of each window


@dataclass(frozen=True)
class Meter:
    """A device, its energy counter, and the clock of the host."""

    device: torch.device
    counter: EnergyCounter
    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep

    def state(self) -> GpuState:
        """Clocks and temperature now; all None on a CPU."""
        return gpu_state(gpu_uuid(self.device))


def measured_tick_s(meter: Meter) -> float:
    """The median of TICKS times between changes of the counter, which is read every POLL_S. Raises Unsupported if the
    counter does not change for MAX_TICK_S."""
    changes_s: list[float] = []  # when the counter changed
    last_value, last_change_s = meter.counter.microjoules(), meter.now()
    while len(changes_s) <= TICKS:
        meter.sleep(POLL_S)
        value, now_s = meter.counter.microjoules(), meter.now()
        if value != last_value:
            changes_s.append(now_s)
            last_value, last_change_s = value, now_s
        elif now_s - last_change_s > MAX_TICK_S:
            raise Unsupported("energy", f"the counter did not change for {MAX_TICK_S:.0f} s ({meter.counter.name})")
    return statistics.median(end - start for start, end in itertools.pairwise(changes_s))


def counted_energy(subject: Subject, meter: Meter, plan: EnergyPlan, progress: Progress) -> dict[str, Any]:
    """The counter's name, its tick in seconds, and the windows in their order."""

    def step() -> None:
        run_steps(subject, 1, PhaseClock(subject.device, ranges.MEASURE, progress))

    tick_s = measured_tick_s(meter)
    windows = [idle_window(meter, plan.min_s)]
    windows += [window_of_steps(meter, plan.min_s, step) for _ in range(plan.windows)]
    windows.append(idle_window(meter, plan.min_s))
    return {"counter": meter.counter.name, "tick_s": tick_s, "windows": windows}


def idle_window(meter: Meter, min_s: float) -> dict[str, Any]:
    """A window of `min_s` in which nothing runs."""
    return _window(meter, IDLE, lambda: meter.sleep(min_s))


def window_of_steps(meter: Meter, min_s: float, step: Callable[[], None]) -> dict[str, Any]:
    """A window of steps, for at least `min_s`. Each step waits for the device."""

    def work() -> int:
        steps, end_s = 0, meter.now() + min_s
        while meter.now() < end_s:
            step()
            steps += 1
        return steps

    return _window(meter, STEPS, work)


def _window(meter: Meter, kind: str, work: Callable[[], int | None]) -> dict[str, Any]:
    """The record of a window during which `work` runs: kind, seconds, microjoules, the number of steps that `work`
    returned (0 if None), and the device's state at both ends. Waits for the device at both ends."""
    begin_state = meter.state()
    synchronize(meter.device)
    begin_uj, begin_s = meter.counter.microjoules(), meter.now()
    steps = work() or 0
    synchronize(meter.device)
    end_uj, end_s = meter.counter.microjoules(), meter.now()
    states_by_end = {"begin": begin_state, "end": meter.state()}
    counts = {"kind": kind, "seconds": end_s - begin_s, "microjoules": end_uj - begin_uj, "steps": steps}
    return counts | {
        end: {field: getattr(state, field) for field in STATE_FIELDS} for end, state in states_by_end.items()
    }
