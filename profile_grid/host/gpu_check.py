"""Notes on the GPU before a measurement: whether it is free, cool, and has enough memory."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from cs336_model import nvidia_smi
from cs336_model.arithmetic.flops import shape_of
from cs336_model.arithmetic.memory import predicted_peak_bytes
from profile_grid.quantities import counted

MAX_IDLE_BYTES = 2**30  # a driver without users holds some hundred MiB
MAX_ENDING_BYTES = 3 * MAX_IDLE_BYTES  # for a few processes that are ending, each with a context: 680 MB on an H200
SLOWDOWNS = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake")


def notes_before(program: dict, gpus: Sequence[str], *, others_may_end: bool = False) -> list[str]:
    """A sentence for each problem of these GPUs that makes the times of a run hard to compare, or may exhaust memory;
    without GPUs whose driver reports no memory in use. If `others_may_end`, processes that returned their lease may
    still be on the GPUs, and are not noted. All GPUs are queried at once, since the run already holds them."""
    with ThreadPoolExecutor(max(len(gpus), 1)) as pool:
        states = list(pool.map(nvidia_smi.gpu_state, gpus))
    run_bytes = needed_bytes(program)
    known_states = [state for state in states if state.used_bytes is not None]
    return [note for state in known_states for note in _notes(state, run_bytes, others_may_end)]


def _notes(gpu: nvidia_smi.GpuState, run_bytes: int | None, others_may_end: bool) -> list[str]:
    """`notes_before` for one GPU, and a run that needs `run_bytes` there (None: unknown)."""
    sentences = []
    is_too_full = gpu.used_bytes > (MAX_ENDING_BYTES if others_may_end else MAX_IDLE_BYTES)
    has_others = gpu.processes and not others_may_end
    if is_too_full or has_others:
        users = counted(gpu.processes, "other process", "other processes") if gpu.processes else "somebody"
        sentences.append(f"the GPU was in use by {users} before the run ({_gib(gpu.used_bytes)} of its memory taken)")
    if slowdowns := [reason for reason in gpu.throttle_reasons or () if reason in SLOWDOWNS]:
        sentences.append(f"the GPU was throttled before the run: {', '.join(slowdowns)}")
    if run_bytes is not None and gpu.free_bytes is not None and run_bytes > gpu.free_bytes:
        sentences.append(f"about {_gib(run_bytes)} of GPU memory needed (estimated), {_gib(gpu.free_bytes)} free")
    return sentences


def visible_gpus() -> list[str]:
    """The UUIDs of the GPUs that CUDA shows to a program started here, in CUDA's order: those in CUDA_VISIBLE_DEVICES
    if it is set. Instead of a UUID, a GPU that nvidia-smi does not list has its name from that variable, or "0" if the
    variable is not set."""
    uuid_by_index = {row["index"]: row["uuid"] for row in nvidia_smi.gpus("index", "uuid")}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return list(uuid_by_index.values()) or ["0"]
    return [_uuid(name.strip(), uuid_by_index) for name in visible.split(",") if name.strip()]


def _uuid(name: str, uuid_by_index: dict[str, str]) -> str:
    """The UUID of the GPU with this index, or whose UUID begins with `name`; else the name itself."""
    uuids_with_this_start = (uuid for uuid in uuid_by_index.values() if uuid.startswith(name))
    return uuid_by_index.get(name) or next(uuids_with_this_start, name)


def needed_bytes(program: dict) -> int | None:
    """Estimated bytes of a run's tensors on one GPU; None without a model of known shape."""
    shape = shape_of(program)
    return predicted_peak_bytes(shape, program["dimensions"]) if shape else None


def _gib(byte_count: int) -> str:
    return f"{byte_count / 2**30:.1f} GiB"
