"""What every NVTX range of a program launched on the GPU, from a capture of Nsight Systems or of PyTorch's profiler."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """`kernel_tables.recorded`, imported when it is asked for: reading a capture needs nothing of recording."""
    if name == "recorded":
        return import_module("kernel_recorder.recorded").recorded
    raise AttributeError(f"module 'kernel_tables' has no attribute {name!r}")
