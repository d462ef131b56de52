"""The GPU before a measurement: is it free, cool, and large enough? Problems are printed, and noted with the run."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cs336_model import nvidia_smi
from cs336_model.arithmetic.flops import shape_of
from cs336_model.program.variants.predicted_memory import predicted_peak_bytes
from profile_grid.quantities import counted

IDLE_BYTES = 2**30  # a driver without users holds some hundred MiB
ENDING_BYTES = 3 * IDLE_BYTES  # with a context of each process that returned its lease, 680 MB on an H200
HEATED = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake")


def notes_before(program: dict, gpus: Sequence[str], alone: bool = True) -> list[str]:
    """Notes on what makes the times of a run on these GPUs hard to compare, or exhausts their memory; [] if the driver
    does not report it. If not `alone`, a measurement of this project that is over may still be present, and is not
    noted. All GPUs are queried at once: the run already has its lease."""
    with ThreadPoolExecutor(max(len(gpus), 1)) as pool:
        states = list(pool.map(nvidia_smi.gpu_state, gpus))
    return [note for gpu in states if gpu.used_bytes is not None for note in notes(gpu, needed_bytes(program), alone)]


def notes(gpu: nvidia_smi.GpuState, needed_bytes: int | None, alone: bool = True) -> list[str]:
    """One sentence for each problem."""
    sentences = []
    if gpu.used_bytes > (IDLE_BYTES if alone else ENDING_BYTES) or (gpu.processes and alone):
        users = counted(gpu.processes, "other process", "other processes") if gpu.processes else "somebody"
        sentences.append(f"the GPU was in use by {users} before the run ({_gib(gpu.used_bytes)} of its memory taken)")
    if heated := [reason for reason in gpu.throttle_reasons or () if reason in HEATED]:
        sentences.append(f"the GPU was throttled before the run: {', '.join(heated)}")
    if needed_bytes is not None and needed_bytes > gpu.free_bytes:
        sentences.append(f"about {_gib(needed_bytes)} of GPU memory needed (estimated), {_gib(gpu.free_bytes)} free")
    return sentences


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
