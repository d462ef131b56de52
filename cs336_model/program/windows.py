"""The profiler around the measured window: none, nsys's capture range, or PyTorch's own."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from kernel_tables.embedded.kineto_capture import export_capture

MEMORY = "memory"  # a recorder of its own, which begins before the model is made (cs336_model.program.memory)
EMITTER_OF_PROFILER = {"none": "none", "nsys": "nvtx", "torch": "record_function", MEMORY: "none"}
WRITING = ("torch", MEMORY)


def profiled_window(profiler: str, device: torch.device) -> AbstractContextManager[profile | None]:
    """What the profiler sees happens inside; the device must be idle at both ends. Gives the recording that
    `save_capture` writes, or None where the profiler is another program."""
    if profiler == "torch":
        # The class below torch.profiler.profile: that one imports the compiler at its start (three seconds, to ask
        # whether CUDA graphs are on), and adds schedules and views that nobody needs here.
        return profile(use_device="cuda" if device.type == "cuda" else None, use_kineto=True)
    if profiler == "nsys" and device.type == "cuda":
        return _nsys_window()
    # nsys without a GPU has no call to begin at: it records the whole program, whose range `measure` is the window.
    return nullcontext()


def save_capture(recording: profile | None, path: Path | None, device: torch.device) -> None:
    """Writes what PyTorch's profiler recorded as SQLite; nothing for the other profilers."""
    if recording is not None:
        export_capture(recording, path, device.type == "cuda", torch.__version__)


@contextmanager
def _nsys_window() -> Iterator[None]:
    """nsys profile --capture-range=cudaProfilerApi records between these two calls."""
    torch.cuda.profiler.start()
    yield
    torch.cuda.profiler.stop()
