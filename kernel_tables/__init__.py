"""What every NVTX range of a program launched on the GPU, from a capture of Nsight Systems or of PyTorch's profiler."""

from importlib import import_module
from typing import Any

# The public names, imported on first use: reading a capture needs nothing of recording.
MODULE_BY_NAME = {
    "Trace": "kernel_tables.trace",
    "read": "kernel_tables.frames",
    "recorded": "kernel_recorder.context",
    "users_rules": "kernel_tables.kernel_classes.categories",
    "__version__": "kernel_tables.version",
}

NO_RECORDER = "recording needs the package kernel_recorder, which is not installed: pip install kernel-recorder"


def __getattr__(name: str) -> Any:
    """`kernel_tables.Trace` and other public names. ModuleNotFoundError says what to install for `recorded`."""
    if name not in MODULE_BY_NAME:
        raise AttributeError(f"module 'kernel_tables' has no attribute {name!r}")
    try:
        return getattr(import_module(MODULE_BY_NAME[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "kernel_recorder":
            raise
        raise ModuleNotFoundError(NO_RECORDER, name=error.name) from None


def __dir__() -> list[str]:
    return [*globals(), *MODULE_BY_NAME]
