"""Energy of a step: windows of seconds in which steps run or nothing runs, between two readings of a counter.

The counter is NVML's for a GPU, and RAPL's for the packages of a processor, with all that runs on them.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from cs336_model import benchmark
from cs336_model import device as devices
from cs336_model.flops import forward_flops
from cs336_model.results import Energy, Window
from cs336_model.spec import Spec
from cs336_model.variants import Unsupported


def measure(spec: Spec, device: torch.device) -> Energy:
    """Windows of at least `window_s` each: idle with the model in memory, `spec.windows` with steps, idle again.

    Raises Unsupported if no counter of this device can be read."""
    name, read = open_counter(device)
    tick_s = measure_tick(read)
    subject = benchmark.Subject(spec, device)
    subject.run_steps("warmup", spec.warmup_steps)

    def run_steps() -> int:
        end_s, steps = time.perf_counter() + spec.window_s, 0
        while time.perf_counter() < end_s:
            subject.run_steps("measure", 1)  # waits for the device
            steps += 1
        return steps

    def wait() -> int:
        time.sleep(spec.window_s)
        return 0

    windows = []
    for kind, work in (("idle", wait), *[("steps", run_steps)] * spec.windows, ("idle", wait)):
        devices.synchronize(device)
        begin_uj, begin_s = read(), time.perf_counter()
        steps = work()
        devices.synchronize(device)
        change_uj, seconds = read() - begin_uj, time.perf_counter() - begin_s
        clock = devices.describe_machine(device).sm_clock_mhz if device.type == "cuda" else None
        windows.append(Window(kind=kind, seconds=seconds, microjoules=change_uj, steps=steps, sm_clock_mhz=clock))
    return Energy(status="complete", counter=name, tick_s=tick_s, windows=windows, forward_flops=forward_flops(spec))


def measure_tick(read: Callable[[], int], changes: int = 10, limit_s: float = 3.0) -> float:
    """The median seconds between changes of a counter. Raises Unsupported if it does not change for `limit_s`."""
    changed_at: list[float] = []
    value, last_s = read(), time.perf_counter()
    while len(changed_at) <= changes:
        time.sleep(0.0002)
        now_value, now_s = read(), time.perf_counter()
        if now_value != value:
            changed_at.append(now_s)
            value, last_s = now_value, now_s
        elif now_s - last_s > limit_s:
            raise Unsupported(f"energy: the counter did not change for {limit_s:g} s")
    return statistics.median(end - start for start, end in itertools.pairwise(changed_at))


def open_counter(device: torch.device) -> tuple[str, Callable[[], int]]:
    """(name, function that returns microjoules) of the counter of this device. Raises Unsupported with the reason."""
    if device.type == "cuda":
        return "NVML, the whole GPU", open_nvml(devices.gpu_uuid(device))
    return "RAPL, the processor's packages", open_rapl(Path("/sys/class/powercap"))


def open_nvml(uuid: str | None) -> Callable[[], int]:
    """A function that returns the energy of one GPU since its driver was loaded."""
    try:
        import pynvml
    except ImportError:
        raise Unsupported("energy: NVML's Python binding is missing: pip install nvidia-ml-py") from None
    if uuid is None:
        raise Unsupported("energy: this PyTorch does not tell the GPU's UUID; 2.5 and newer do")
    try:
        pynvml.nvmlInit()
        # by its UUID: NVML numbers the GPUs of the host, CUDA_VISIBLE_DEVICES those of the process
        gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    except pynvml.NVMLError as error:
        raise Unsupported(f"energy: NVML has no counter of this GPU ({error})") from error
    return lambda: 1000 * pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)  # microjoules


def open_rapl(folder: Path) -> Callable[[], int]:
    """A function that returns the energy of all packages of the processor since now, by Linux's powercap files. They
    begin again at 0 after minutes: read it every minute."""
    zones = [name.parent for name in sorted(folder.glob("intel-rapl:*/name")) if name.read_text().startswith("package")]
    if not zones:
        raise Unsupported(f"energy: this host shows no counter of its processor (no package in {folder.name})")
    try:
        limits = {zone / "energy_uj": int(zone.joinpath("max_energy_range_uj").read_text()) for zone in zones}
        values = {file: int(file.read_text()) for file in limits}
    except PermissionError:
        remedy = "sudo chmod a+r /sys/class/powercap/*/energy_uj"
        raise Unsupported(f"energy: only root may read the processor's counter: {remedy}") from None
    total_uj = 0

    def read() -> int:
        nonlocal total_uj
        for file, limit in limits.items():
            change, values[file] = (value := int(file.read_text())) - values[file], value
            total_uj += change if change >= 0 else change + limit
        return total_uj

    return read
