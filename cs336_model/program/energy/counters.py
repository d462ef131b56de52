"""The energy counters of devices: NVML's of a GPU, RAPL's of a processor's packages.

A counter is read as whole microjoules that only grow. Where there is none the reason is one line.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import torch

from cs336_model.program.device import gpu_uuid
from cs336_model.program.variants.unsupported import Unsupported

POWERCAP = Path("/sys/class/powercap")
TICKS, PATIENCE_S, POLL_S = 10, 3.0, 0.0002


class EnergyCounter(Protocol):
    """A counter of energy; `name` says whose it is, in words."""

    name: str

    def microjoules(self) -> int:
        """What it counts now."""


class NvmlCounter:
    """The energy of one whole GPU since the driver was loaded, by nvmlDeviceGetTotalEnergyConsumption."""

    name = "NVML, the whole GPU"

    def __init__(self, uuid: str | None) -> None:
        """Raises Unsupported where the driver's counter of the GPU with this UUID cannot be read."""
        if uuid is None:
            raise Unsupported("energy", "this PyTorch does not tell the GPU's UUID; 2.5 and newer do")
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
            raise Unsupported("energy", f"NVML counts none of this GPU ({error})") from error

    def microjoules(self) -> int:
        return 1000 * self._read(self._gpu)


class RaplCounter:
    """The energy of all packages of a host, whatever runs on them, by the kernel's powercap files; they wrap around."""

    name = "RAPL, the processor's packages"

    def __init__(self, folder: Path = POWERCAP) -> None:
        """Raises Unsupported where the host shows no package, or not to this user."""
        zones = [zone for zone in sorted(folder.glob("intel-rapl:*")) if _text(zone / "name").startswith("package")]
        if not zones:
            raise Unsupported("energy", f"this host shows no counter of its processor (no package in {folder.name})")
        self._files = [zone / "energy_uj" for zone in zones]
        try:
            self._last = [int(file.read_text()) for file in self._files]
            self._range = [int((zone / "max_energy_range_uj").read_text()) for zone in zones]
        except PermissionError:
            raise Unsupported("energy", f"{folder.name}'s energy_uj is for root alone: sudo chmod a+r it") from None
        self._total = 0

    def microjoules(self) -> int:
        """Microjoules since the counter was made; read more often than it wraps around, which takes minutes."""
        for index, file in enumerate(self._files):
            now = int(file.read_text())
            step = now - self._last[index]
            self._total += step if step >= 0 else step + self._range[index]
            self._last[index] = now
        return self._total


def energy_counter(device: torch.device) -> EnergyCounter:
    """The counter of this device. Raises Unsupported where there is none."""
    return NvmlCounter(gpu_uuid(device)) if device.type == "cuda" else RaplCounter()


def measured_tick_s(
    counter: EnergyCounter,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """The median time between two changes of the counter, seen by looking every 0.2 ms. Raises Unsupported where it
    stands still for three seconds."""
    changed: list[float] = []
    last, since = counter.microjoules(), now()
    while len(changed) <= TICKS:
        sleep(POLL_S)
        value, moment = counter.microjoules(), now()
        if value != last:
            changed, last, since = [*changed, moment], value, moment
        elif moment - since > PATIENCE_S:
            raise Unsupported("energy", f"the counter stood still for {PATIENCE_S:.0f} s ({counter.name})")
    return statistics.median(b - a for a, b in itertools.pairwise(changed))


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
