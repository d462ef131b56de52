"""NVML, the driver's library, by its Python binding. Imports no torch, and does not use CUDA."""

from functools import cache
from types import ModuleType


@cache
def nvml() -> ModuleType | None:
    """The binding, initialized; None if that fails. Call it before there is a lease: importing and initializing take
    longer than a query, and meanwhile the GPU would wait."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or one that this binding does not know
        return None
    return pynvml
