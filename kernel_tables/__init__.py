"""What every NVTX range of a program launched on the GPU, from a capture of Nsight Systems or of PyTorch's profiler."""

from importlib import import_module
from typing import Any

# The public names, imported on first use: the ranges in a recorded program need nothing of reading.
_MODULES = {
    "read": "profile", "Profile": "profile", "recorded": "record.context", "TraceError": "errors",
    "ImpossibleCapture": "errors", "NotConserved": "errors", "Finding": "errors", "__version__": "version",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'kernel_tables' has no attribute {name!r}")
    return getattr(import_module(f"kernel_tables.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
