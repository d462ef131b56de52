"""The profiler around the measured window: none, nsys's capture range, or PyTorch's own."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from cs336_model.kineto_capture import export_capture

EMITTER_OF_PROFILER = {"none": "none", "nsys": "nvtx", "torch": "record_function"}


def profiled_window(profiler: str, device: torch.device, path_to_capture: Path | None) -> AbstractContextManager:
    """What the capture holds happens inside; the device must be idle at both ends."""
    if profiler == "nsys" and device.type == "cuda":
        return _nsys_window()
    if profiler == "torch":
        return _torch_window(device, path_to_capture)
    # nsys without a GPU has no call to begin at: it records the whole program, whose range `measure` is the window.
    return nullcontext()


@contextmanager
def _nsys_window() -> Iterator[None]:
    """nsys profile --capture-range=cudaProfilerApi records between these two calls."""
    torch.cuda.profiler.start()
    yield
    torch.cuda.profiler.stop()


@contextmanager
def _torch_window(device: torch.device, path_to_capture: Path) -> Iterator[None]:
    """Kineto through the class below torch.profiler.profile: that one imports the compiler at its start (three
    seconds, to ask whether CUDA graphs are on), and adds schedules and views that nobody needs here."""
    on_gpu = device.type == "cuda"
    with profile(use_device="cuda" if on_gpu else None, use_kineto=True) as recording:
        yield
    export_capture(recording, path_to_capture, on_gpu, torch.__version__)
