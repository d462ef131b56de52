"""The GPU before a measurement: is it free, cool, and large enough? What is not is said and noted with the run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cs336_model import nvidia_smi
from cs336_model.arithmetic.flops import shape_of
from cs336_model.arithmetic.memory import estimated_peak_bytes
from cs336_model.nvml import nvml
from profile_grid.quantities import counted

FIELDS = ("memory.used", "memory.free", "clocks_throttle_reasons.active")
IDLE_BYTES = 2**30  # a driver without users holds some hundred MiB
ENDING_BYTES = 3 * IDLE_BYTES  # and processes that gave their lease back a context each, 680 MB on an H200
HEATED = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake")


@dataclass(frozen=True)
class GpuBefore:
    """One GPU, before a program of ours is on it."""

    used_bytes: int
    free_bytes: int
    throttle_reasons: tuple[str, ...]
    processes: int


def notes_before(program: dict, gpus: Sequence[str], alone: bool = True) -> list[str]:
    """What makes the times of a run on these GPUs hard to compare, or lets it run out of memory; [] where the driver
    says nothing of them. Not `alone`: a measurement that is over may still be there, and is no other's. All are asked
    at once: the run has its lease already."""
    with ThreadPoolExecutor(max(len(gpus), 1)) as pool:
        gpu_states = list(pool.map(gpu_before, gpus))
    return [note for gpu in gpu_states if gpu is not None for note in notes(gpu, needed_bytes(program), alone)]


def notes(gpu: GpuBefore, needed_bytes: int | None, alone: bool = True) -> list[str]:
    """One sentence for each thing that is not as it should be."""
    sentences = []
    if gpu.used_bytes > (IDLE_BYTES if alone else ENDING_BYTES) or (gpu.processes and alone):
        users = counted(gpu.processes, "other process", "other processes") if gpu.processes else "somebody"
        sentences.append(f"the GPU was in use by {users} before the run ({_gib(gpu.used_bytes)} of its memory taken)")
    if heated := [reason for reason in gpu.throttle_reasons if reason in HEATED]:
        sentences.append(f"the GPU was throttled before the run: {', '.join(heated)}")
    if needed_bytes is not None and needed_bytes > gpu.free_bytes:
        sentences.append(f"about {_gib(needed_bytes)} of GPU memory needed (estimated), {_gib(gpu.free_bytes)} free")
    return sentences


def gpu_before(gpu: str) -> GpuBefore | None:
    """What the driver says of a GPU that a program will take; None where it says nothing. NVML is asked within this
    process; nvidia-smi, which takes a tenth of a second and more for a question, where NVML does not know the GPU."""
    return _before_from_nvml(gpu) or _before_from_smi(gpu)


def _before_from_nvml(gpu: str) -> GpuBefore | None:
    if (pynvml := nvml()) is None:
        return None
    try:
        device = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)  # what nvidia-smi shows
        return GpuBefore(
            used_bytes=memory.used,
            free_bytes=memory.free,
            throttle_reasons=tuple(
                nvidia_smi.throttle_reasons(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))
            ),
            processes=len(pynvml.nvmlDeviceGetComputeRunningProcesses(device)),
        )
    except pynvml.NVMLError:  # NVML differs between drivers, and part of a GPU (MIG) tells less
        return None


def _before_from_smi(gpu: str) -> GpuBefore | None:
    rows = nvidia_smi.gpus(*FIELDS, gpu=gpu)
    if not rows:
        return None
    used, free, reasons = rows[0].values()
    if not (used.isdigit() and free.isdigit()):
        return None
    return GpuBefore(
        used_bytes=int(used) * 2**20,
        free_bytes=int(free) * 2**20,
        throttle_reasons=tuple(nvidia_smi.throttle_reasons_in(reasons) or ()),
        processes=len(nvidia_smi.compute_processes(gpu)),
    )


def visible_gpus() -> list[str]:
    """The UUIDs of the GPUs that CUDA shows to a program started here, in its order: never more than
    CUDA_VISIBLE_DEVICES names. Where nvidia-smi tells no UUID, the name that is used for the GPU."""
    uuids = {row["index"]: row["uuid"] for row in nvidia_smi.gpus("index", "uuid")}
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(uuids.values()) or ["0"]
    return [_uuid(name.strip(), uuids) for name in named.split(",") if name.strip()]


def _uuid(name: str, uuids: dict[str, str]) -> str:
    """The UUID of a GPU that is named by its number, or by the beginning of its UUID."""
    return uuids.get(name) or next((uuid for uuid in uuids.values() if uuid.startswith(name)), name)


def needed_bytes(program: dict) -> int | None:
    """An estimate of the memory that a run's tensors take; None for other people's models."""
    shape = shape_of(program)
    return estimated_peak_bytes(shape, program["dimensions"]["mode"], program["dimensions"]) if shape else None


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
