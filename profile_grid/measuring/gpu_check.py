"""The GPU before a measurement: is it free, cool, and large enough? What is not is said and noted with the run."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cs336_model.arithmetic.flops import ModelShape
from cs336_model.arithmetic.memory import estimated_peak_bytes
from cs336_model.program.gpu_state import throttle_reasons

OWN_CONSTRUCTOR = "cs336_model.model:TransformerLM"  # the one whose memory can be told from its shape
QUERY = "memory.used,memory.free,clocks_throttle_reasons.active"
IDLE_BYTES = 2**30  # a driver without users holds some hundred MiB
HEATED = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake")
PATIENCE_S = 20


@dataclass(frozen=True)
class GpuBefore:
    """One GPU, before a program of ours is on it."""

    used_bytes: int
    free_bytes: int
    throttle_reasons: tuple[str, ...]
    processes: int


def gpu_is_visible() -> bool:
    """Whether the NVIDIA driver shows a GPU, asked without importing torch."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def notes_before(program: dict) -> list[str]:
    """What makes the times of a run hard to compare, or lets it run out of memory; [] without a GPU or nvidia-smi."""
    gpu = None if program["device"] == "cpu" else gpu_before()
    return [] if gpu is None else notes(gpu, needed_bytes(program))


def notes(gpu: GpuBefore, needed_bytes: int | None) -> list[str]:
    """One sentence for each thing that is not as it should be."""
    found = []
    if gpu.processes or gpu.used_bytes > IDLE_BYTES:
        users = f"{gpu.processes} other process(es)" if gpu.processes else "somebody"
        found.append(f"the GPU was in use by {users} before the run ({_gib(gpu.used_bytes)} of its memory taken)")
    if heated := [reason for reason in gpu.throttle_reasons if reason in HEATED]:
        found.append(f"the GPU was throttled before the run: {', '.join(heated)}")
    if needed_bytes is not None and needed_bytes > gpu.free_bytes:
        found.append(f"about {_gib(needed_bytes)} of GPU memory needed (estimated), {_gib(gpu.free_bytes)} free")
    return found


def gpu_before() -> GpuBefore | None:
    """What nvidia-smi says of the GPU that a program will take; None where it says nothing."""
    row = _smi(f"--query-gpu={QUERY}")
    fields = [field.strip() for field in row.splitlines()[0].split(",")] if row else []
    if len(fields) != len(QUERY.split(",")) or not (fields[0].isdigit() and fields[1].isdigit()):
        return None
    used, free, reasons = fields
    return GpuBefore(
        used_bytes=int(used) * 2**20,
        free_bytes=int(free) * 2**20,
        throttle_reasons=tuple(throttle_reasons(int(reasons, 16))) if reasons.startswith("0x") else (),
        processes=sum(line.strip().isdigit() for line in _smi("--query-compute-apps=pid").splitlines()),
    )


def needed_bytes(program: dict) -> int | None:
    """An estimate of the memory that a run's tensors take (fp32); None for other people's models."""
    if program["constructor"] != OWN_CONSTRUCTOR:
        return None
    sizes = {
        name: program["constructor_args"][name] for name in ("vocab_size", "d_model", "num_layers", "num_heads", "d_ff")
    }
    shape = ModelShape(batch_size=program["batch_size"], context_length=program["context_length"], **sizes)
    return estimated_peak_bytes(shape, program["mode"])


def _smi(query: str) -> str:
    """What nvidia-smi answers about the first GPU that CUDA would show; "" where it is not there or refuses."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"
    command = ["nvidia-smi", f"--id={first}", query, "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
