"""The ranges of a loop, and the window that a profiler records."""

from __future__ import annotations

from contextlib import contextmanager

import torch


@contextmanager
def marked(name: str):
    torch.cuda.nvtx.range_push(name) if torch.cuda.is_available() else None
    yield
    torch.cuda.nvtx.range_pop() if torch.cuda.is_available() else None


@contextmanager
def window(device: str):
    """What nsys records: all that was launched inside is done at its end."""
    if device != "cuda":
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    yield
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()
