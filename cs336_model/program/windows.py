"""The profiler around the measured window: none, nsys's or ncu's, or PyTorch's own."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch.autograd.profiler import profile

from cs336_model import ranges
from kernel_tables.kineto.capture import export_capture

NSYS, NCU = "nsys", "ncu"
MEMORY = "memory"  # a recorder of its own, which begins before the model is made (cs336_model.program.memory)
ENERGY = "energy"  # no profiler either: windows of seconds, the counter read at their ends (cs336_model.program.energy)
EMITTER_OF_PROFILER = {
    "none": "none",
    NSYS: "nvtx",
    NCU: "none",
    "torch": "record_function",
    MEMORY: "none",
    ENERGY: "none",
}
WRITING = ("torch", MEMORY, ENERGY)
OF_CUDA = (NSYS, NCU)  # programs that look on between cudaProfilerStart and cudaProfilerStop


def no_recording() -> None:
    """Closes a recording that was not opened."""


def open_recording(profiler: str) -> Callable[[], None]:
    """Opens the range that nsys may record from (`nsys profile --capture-range=nvtx`), and returns what closes it;
    nothing for another profiler.

    nsys takes more than a second to begin and three to end (H200), in which the process waits: to be called before it
    has a lease. What it so records before the measured steps is left out of the capture. Python's objects up to now are
    searched for garbage no more: that would take a tenth of a second behind the lease.
    """
    if profiler != NSYS:
        return no_recording
    import nvtx

    gc.collect()
    gc.freeze()
    opened = nvtx.start_range(ranges.RECORDING, domain=ranges.DOMAIN)
    return lambda: nvtx.end_range(opened)


@contextmanager
def profiled_window(
    profiler: str, device: torch.device, at_end: Callable[[], None], close_recording: Callable[[], None] = no_recording
) -> Iterator[profile | None]:
    """What the profiler sees happens inside; the device must be idle at both ends. Gives the recording that
    `save_capture` writes, or None where the profiler is another program.

    `at_end` is called when nothing more is to be recorded: before nsys is told to stop, which takes it three seconds
    (H200) in which the device waits. nsys without a GPU has no call to begin at: it records the whole program, whose
    range `measure` is the window.
    """
    if profiler in OF_CUDA and device.type == "cuda":
        with _short_collections(profiler):
            torch.cuda.synchronize(device)  # nothing from before the window may run in it
            torch.cuda.profiler.start()  # nsys's --capture-range=cudaProfilerApi, and ncu's --profile-from-start off
            yield None
        at_end()
        torch.cuda.profiler.stop()
        close_recording()
        return
    with (
        _short_collections(profiler),
        _recording_of_torch(device) if profiler == "torch" else nullcontext() as recording,
    ):
        yield recording
    at_end()
    close_recording()


@contextmanager
def _short_collections(profiler: str) -> Iterator[None]:
    """Garbage collections in a window with ranges do not search the objects that existed before it. Hooks of the
    backward passes make so many objects that a full collection comes in three steps: for large, an H200 waits 115 ms.
    """
    if EMITTER_OF_PROFILER[profiler] == "none":
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _recording_of_torch(device: torch.device) -> profile:
    """The class below torch.profiler.profile: that one imports the compiler at its start (three seconds, to ask whether
    CUDA graphs are on), and adds schedules and views that nobody needs here."""
    return profile(use_device="cuda" if device.type == "cuda" else None, use_kineto=True)


def save_capture(recording: profile | None, path: Path | None, device: torch.device) -> None:
    """Writes what PyTorch's profiler recorded as SQLite; nothing for the other profilers."""
    if recording is not None:
        export_capture(recording, path, device.type == "cuda", torch.__version__)
