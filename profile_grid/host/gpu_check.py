"""Notes on the GPU before a measurement: whether it is free, cool, and has enough memory."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cs336_model import nvidia_smi
from cs336_model.arithmetic.flops import shape_of
from cs336_model.program.variants.predicted_memory import predicted_peak_bytes
from profile_grid.quantities import counted

MAX_IDLE_BYTES = 2**30  # a driver without users holds some hundred MiB
MAX_ENDING_BYTES = 3 * MAX_IDLE_BYTES  # each process that returned its lease has a context, 680 MB on an H200
SLOWDOWNS = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake")


def notes_before(program: dict, gpus: Sequence[str], is_alone: bool = True) -> list[str]:
    """Notes on what makes the times of a run on these GPUs hard to compare, or exhausts their memory; [] if the driver
    does not report it. If not `is_alone`, a measurement of this project that is over may still be present, and is not
    noted. All GPUs are queried at once: the run already has its lease."""
    with ThreadPoolExecutor(max(len(gpus), 1)) as pool:
        states = list(pool.map(nvidia_smi.gpu_state, gpus))
    needed = needed_bytes(program)
    return [note for gpu in states if gpu.used_bytes is not None for note in _notes(gpu, needed, is_alone)]


def _notes(gpu: nvidia_smi.GpuState, needed: int | None, is_alone: bool) -> list[str]:
    """One sentence for each problem; `needed` is in bytes."""
    sentences = []
    if gpu.used_bytes > (MAX_IDLE_BYTES if is_alone else MAX_ENDING_BYTES) or (gpu.processes and is_alone):
        users = counted(gpu.processes, "other process", "other processes") if gpu.processes else "somebody"
        sentences.append(f"the GPU was in use by {users} before the run ({_gib(gpu.used_bytes)} of its memory taken)")
    if slowdowns := [reason for reason in gpu.throttle_reasons or () if reason in SLOWDOWNS]:
        sentences.append(f"the GPU was throttled before the run: {', '.join(slowdowns)}")
    if needed is not None and gpu.free_bytes is not None and needed > gpu.free_bytes:
        sentences.append(f"about {_gib(needed)} of GPU memory needed (estimated), {_gib(gpu.free_bytes)} free")
    return sentences


def visible_gpus() -> list[str]:
    """The UUIDs of the GPUs that CUDA shows to a program started here, in its order: at most those of
    CUDA_VISIBLE_DEVICES. If nvidia-smi does not know a GPU, its name in that variable; "0" if that is unset."""
    uuids = {row["index"]: row["uuid"] for row in nvidia_smi.gpus("index", "uuid")}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(uuids.values()) or ["0"]
    return [_uuid(name.strip(), uuids) for name in visible.split(",") if name.strip()]


def _uuid(name: str, uuids: dict[str, str]) -> str:
    """The UUID of a GPU by its number, or by the beginning of its UUID."""
    return uuids.get(name) or next((uuid for uuid in uuids.values() if uuid.startswith(name)), name)


def needed_bytes(program: dict) -> int | None:
    """Estimated bytes of a run's tensors on one GPU; None without a model of known shape."""
    shape = shape_of(program)
    return predicted_peak_bytes(shape, program["dimensions"]) if shape else None


def _gib(byte_count: int) -> str:
    return f"{byte_count / 2**30:.1f} GiB"
