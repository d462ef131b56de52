"""The GPU before a measurement: is it free, cool, and large enough? Problems are printed, and noted with the run."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cs336_model import nvidia_smi
from cs336_model.arithmetic.flops import shape_of
from cs336_model.nvml import nvml
from cs336_model.program.variants.predicted_memory import predicted_peak_bytes
from profile_grid.quantities import counted

FIELDS = ("memory.used", "memory.free", "clocks_throttle_reasons.active")
IDLE_BYTES = 2**30  # a driver without users holds some hundred MiB
ENDING_BYTES = 3 * IDLE_BYTES  # with a context of each process that returned its lease, 680 MB on an H200
HEATED = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake")


@dataclass(frozen=True)
class GpuBefore:
    """One GPU, before the measured program uses it."""

    used_bytes: int
    free_bytes: int
    throttle_reasons: tuple[str, ...]
    processes: int


def notes_before(program: dict, gpus: Sequence[str], alone: bool = True) -> list[str]:
    """Notes on what makes the times of a run on these GPUs hard to compare, or exhausts their memory; [] if the driver
    does not report it. If not `alone`, a measurement of this project that is over may still be present, and is not
    noted. All GPUs are queried at once: the run already has its lease."""
    with ThreadPoolExecutor(max(len(gpus), 1)) as pool:
        gpu_states = list(pool.map(gpu_before, gpus))
    return [note for gpu in gpu_states if gpu is not None for note in notes(gpu, needed_bytes(program), alone)]


def notes(gpu: GpuBefore, needed_bytes: int | None, alone: bool = True) -> list[str]:
    """One sentence for each problem."""
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
    """The state of a GPU from NVML; if that does not know the GPU, from nvidia-smi, which takes a tenth of a second or
    more; None if both fail."""
    return _before_from_nvml(gpu) or _before_from_smi(gpu)


def _before_from_nvml(gpu: str) -> GpuBefore | None:
    if (pynvml := nvml()) is None:
        return None
    try:
        device = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)  # as in nvidia-smi
        return GpuBefore(
            used_bytes=memory.used,
            free_bytes=memory.free,
            throttle_reasons=tuple(
                nvidia_smi.throttle_reasons(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device))
            ),
            processes=len(pynvml.nvmlDeviceGetComputeRunningProcesses(device)),
        )
    except pynvml.NVMLError:  # NVML differs between drivers, and reports less for a part of a GPU (MIG)
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
    """The UUIDs of the GPUs that CUDA shows to a program started here, in its order: at most those of
    CUDA_VISIBLE_DEVICES. If nvidia-smi reports no UUID, the name of the GPU in that variable."""
    uuids = {row["index"]: row["uuid"] for row in nvidia_smi.gpus("index", "uuid")}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(uuids.values()) or ["0"]
    return [_uuid(name.strip(), uuids) for name in visible.split(",") if name.strip()]


def _uuid(name: str, uuids: dict[str, str]) -> str:
    """The UUID of a GPU by its number, or by the beginning of its UUID."""
    return uuids.get(name) or next((uuid for uuid in uuids.values() if uuid.startswith(name)), name)


def needed_bytes(program: dict) -> int | None:
    """Estimated bytes of a run's tensors; None for custom models."""
    shape = shape_of(program)
    return predicted_peak_bytes(shape, program["dimensions"]) if shape else None


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
