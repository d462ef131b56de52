"""NVML, the driver's own library, by its Python binding. Imports no torch, and asks CUDA for nothing."""

from functools import cache
from types import ModuleType


@cache
def nvml() -> ModuleType | None:
    """The binding, open; None where it cannot be. Call it before there is a lease: importing and opening it takes
    longer than asking it, and meanwhile the GPU would wait."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or one that this binding does not know
        return None
    return pynvml
