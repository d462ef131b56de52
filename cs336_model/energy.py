"""Energy of a step: windows of seconds in which steps run or nothing runs, between two readings of NVML's counter."""

import time
from collections.abc import Callable

import torch

from cs336_model import benchmark
from cs336_model import device as devices
from cs336_model.results import Energy, Window
from cs336_model.spec import Spec, forward_flops
from cs336_model.variants import Unsupported


def measure(spec: Spec, device: torch.device) -> Energy:
    """Windows of at least `window_s` each: idle with the model in memory, `spec.windows` with steps, idle again.

    Raises Unsupported if this device has no counter that can be read."""
    read = open_counter(device)
    subject = benchmark.Subject(spec, device)
    subject.run_steps("warmup", spec.warmup_steps)

    windows = []
    for kind in ("idle", *["steps"] * spec.windows, "idle"):
        devices.synchronize(device)
        begin_uj, begin_s, steps = read(), time.perf_counter(), 0
        if kind == "idle":
            time.sleep(spec.window_s)
        while kind == "steps" and time.perf_counter() < begin_s + spec.window_s:
            subject.run_steps("measure", 1)  # waits for the device
            steps += 1
        change_uj, seconds = read() - begin_uj, time.perf_counter() - begin_s
        windows.append(Window(kind=kind, seconds=seconds, microjoules=change_uj, steps=steps))
    counter = "NVML, the whole GPU"
    return Energy(status="complete", counter=counter, windows=windows, forward_flops=forward_flops(spec))


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
