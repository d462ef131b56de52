"""Whether this machine has a GPU, and so which profiler a capture is made with."""

from __future__ import annotations

from pathlib import Path

from kernel_recorder.in_process.settings import NSYS, TORCH
from kernel_tables.reading import nsys


def gpu_is_visible() -> bool:
    """Whether the NVIDIA driver shows a GPU, asked without importing torch."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()


def profiler_of_this_machine() -> str:
    """`nsys` where there is one and a GPU; else `torch`, PyTorch's own."""
    return NSYS if nsys.find() is not None and gpu_is_visible() else TORCH
