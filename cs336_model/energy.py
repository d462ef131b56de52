"""Energy of a step: windows of seconds in which steps run or nothing runs, between two readings of NVML's counter."""

import itertools
import statistics
import time
from collections.abc import Callable

import torch

from cs336_model import benchmark
from cs336_model import device as devices
from cs336_model.flops import forward_flops
from cs336_model.results import Energy, Window
from cs336_model.spec import Spec
from cs336_model.variants import Unsupported


def measure(spec: Spec, device: torch.device) -> Energy:
    """Windows of at least `window_s` each: idle with the model in memory, `spec.windows` with steps, idle again.

    Raises Unsupported if this device has no counter that can be read."""
    read = open_counter(device)
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
        windows.append(Window(kind=kind, seconds=seconds, microjoules=change_uj, steps=steps))
    counter = "NVML, the whole GPU"
    return Energy(status="complete", counter=counter, tick_s=tick_s, windows=windows, forward_flops=forward_flops(spec))


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


def open_counter(device: torch.device) -> Callable[[], int]:
    """A function that returns the microjoules of a GPU since its driver was loaded. Raises Unsupported."""
    if device.type != "cuda":
        raise Unsupported("energy: only a GPU has a counter that is read")
    try:
        import pynvml

        pynvml.nvmlInit()
        # by its UUID: NVML numbers the GPUs of the host, PyTorch those of the process
        gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    except ImportError:
        raise Unsupported("energy: NVML's Python binding is missing: pip install nvidia-ml-py") from None
    except pynvml.NVMLError as error:
        raise Unsupported(f"energy: NVML has no counter of this GPU ({error})") from error
    return lambda: 1000 * pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
