"""The device of a run: which one, how to wait for it, its memory and state, and facts about the machine."""

import gc
import hashlib
import os
import platform
from collections.abc import Sequence
from timeit import default_timer
from typing import Any

import torch

from cs336_model.cpu import cpu_name
from cs336_model.nvidia_smi import gpu_state
from cs336_model.program.lease import check_leased, give_back_lease

Moment = torch.cuda.Event | float
MAX_REMAINING_BYTES = 256 * 2**20  # a batch and the workspace of cuBLAS need less; more suggests cycles of references


def resolve_device(name: str, gpu_index: int = 0) -> torch.device:
    """The device that "auto", "cuda" or "cpu" names; of several visible GPUs, the one with this index. Raises
    RuntimeError for "cuda" if torch sees no GPU."""
    if name == "cuda" and not torch.cuda.is_available():
        raise RuntimeError(
            f"device is 'cuda', but torch {torch.__version__} sees no GPU: "
            "check the driver (nvidia-smi) and CUDA_VISIBLE_DEVICES, or use device 'auto' or 'cpu'"
        )
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device("cuda", gpu_index) if name == "cuda" else torch.device("cpu")


def open_context(device: torch.device) -> None:
    """Creates the CUDA context, so that its cost is not mistaken for the model's; nothing on a CPU. Raises RuntimeError
    if GPUs were leased, and this is none of them."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
        check_leased(gpu_uuid(device))
        torch.empty(1, device=device)
        torch.cuda.synchronize(device)


def leave_device(device: torch.device) -> None:
    """Frees unreferenced memory, and returns the lease of the GPU; nothing on a CPU.

    Garbage is collected only if much memory is still in use, because of cycles of references, for example of
    checkpoints: it takes a tenth of a second, during which the GPU idles."""
    if device.type == "cuda":
        if torch.cuda.memory_allocated(device) > MAX_REMAINING_BYTES:
            gc.collect()
        torch.cuda.empty_cache()
        give_back_lease()


def synchronize(device: torch.device) -> None:
    """Waits until the device has finished its work; nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def moment(device: torch.device) -> Moment:
    """This moment: on a GPU, an event on its stream, so that nothing waits; on a CPU, the time of default_timer."""
    if device.type != "cuda":
        return default_timer()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(start: Moment, end: Moment) -> float:
    """The seconds between two moments of a device, which must be idle now."""
    return end - start if isinstance(end, float) else start.elapsed_time(end) / 1e3


def gpu_digest(device: torch.device) -> str | None:
    """The SHA-256 of the UUID of this GPU, which differs between the GPUs of a host; None if unknown."""
    uuid = gpu_uuid(device)
    return _digest((uuid,)) if uuid else None


def memory_facts(device: torch.device) -> dict[str, int | None]:
    """Peak bytes of tensors and of the allocator, since the program began or reset the peaks; and all bytes of the
    device. All are None on a CPU."""
    if device.type != "cuda":
        return {"peak_allocated_bytes": None, "peak_reserved_bytes": None, "device_total_bytes": None}
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
        "device_total_bytes": torch.cuda.get_device_properties(device).total_memory,
    }


def device_facts(device: torch.device) -> dict[str, dict]:
    """The memory and the machine, as results have them."""
    return {"memory": memory_facts(device), "machine": machine_facts(device)}


def machine_facts(device: torch.device) -> dict[str, Any]:
    """The machine: device, driver, versions, and the GPU's clocks at this moment; None for what is unknown here."""
    uuid = gpu_uuid(device)
    state = gpu_state(uuid)
    return {
        "device": device.type,
        "device_name": torch.cuda.get_device_name(device) if device.type == "cuda" else cpu_name(),
        "gpu_uuid_sha256": _digest(state.host_uuids or (uuid,)) if uuid else None,
        "driver": state.driver,
        "cuda": torch.version.cuda if device.type == "cuda" else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "sm_clock_mhz": state.sm_clock_mhz,
        "memory_clock_mhz": state.memory_clock_mhz,
        "temperature_c": state.temperature_c,
        "throttle_reasons": state.throttle_reasons,
        "other_processes": other_processes(state.processes),
        "cpu_name": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def other_processes(count: int | None) -> int | None:
    """The number of other processes on a GPU that `count` processes use. One of them is this process, which is not
    looked up by its number: in a container, the driver knows another number. None if the driver lists no process."""
    return count - 1 if count else None


def _digest(uuids: Sequence[str]) -> str:
    """The SHA-256 of sorted UUIDs. That of all GPUs of a host stands for the host, whichever GPU was free."""
    return hashlib.sha256("\n".join(sorted(uuids)).encode()).hexdigest()


def gpu_uuid(device: torch.device) -> str | None:
    """The UUID ("GPU-...") as the driver spells it; None on a CPU, and with PyTorch before 2.5, which lacks it."""
    if device.type != "cuda":
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{uuid}"
