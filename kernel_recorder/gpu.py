"""Whether this machine has a GPU, and which profiler it can use."""

from pathlib import Path

from kernel_recorder.in_process.settings import NSYS, TORCH
from kernel_tables.reading import nsys


def gpu_is_visible() -> bool:
    """Whether the NVIDIA driver shows a GPU, without importing torch."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def profiler_of_this_machine() -> str:
    """`nsys` if it is on PATH and there is a GPU; else `torch`."""
    return NSYS if nsys.find() is not None and gpu_is_visible() else TORCH
