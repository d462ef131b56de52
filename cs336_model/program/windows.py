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
MEMORY = "memory"  # a separate recorder, which starts before the model is made (cs336_model.program.memory)
ENERGY = "energy"  # not a profiler: windows of seconds, with a counter (cs336_model.program.energy)
EMITTER_OF_PROFILER = {
    "none": "none", NSYS: "nvtx", NCU: "none", "torch": "record_function", MEMORY: "none", ENERGY: "none",
}  # fmt: skip
WRITING_PROFILERS = ("torch", MEMORY, ENERGY)
CUDA_PROFILERS = (NSYS, NCU)  # programs that can record between cudaProfilerStart and cudaProfilerStop


def close_nothing() -> None:
    """Does nothing, in place of a function that closes nsys's recording."""


def open_recording(profiler: str) -> Callable[[], None]:
    """Opens the range in which nsys records (`nsys profile --capture-range=nvtx`), and returns a function that closes
    it. For another profiler, it does nothing, and returns `close_nothing`.

    nsys takes more than a second to start and three to end (H200), while the process waits, so call this before there
    is a lease. What nsys records before the measured steps is left out of the capture. From now on, existing objects
    are not searched for garbage, which would take a tenth of a second during the lease.
    """
    if profiler != NSYS:
        return close_nothing
    import nvtx

    gc.collect()
    gc.freeze()
    range_id = nvtx.start_range(ranges.RECORDING, domain=ranges.DOMAIN)
    return lambda: nvtx.end_range(range_id)


@contextmanager
def profiled_window(
    profiler: str, device: torch.device, at_end: Callable[[], None], close_recording: Callable[[], None] = close_nothing
) -> Iterator[profile | None]:
    """A with block that the profiler records; the device must be idle at both ends. Yields PyTorch's profile for
    `save_capture`; None for another profiler.

    `at_end` is called after the block. On a GPU, nsys and ncu still record then: nsys takes three seconds (H200) to
    stop, and `at_end` may give the device back before. Without a GPU, nsys knows no call that starts the recording, so
    it records the entire program, in which the range `measure` is the window.
    """
    if profiler in CUDA_PROFILERS and device.type == "cuda":
        with _cheap_garbage_collection(profiler):
            torch.cuda.synchronize(device)  # no earlier work may run in the window
            torch.cuda.profiler.start()  # nsys's --capture-range=cudaProfilerApi, and ncu's --profile-from-start off
            yield None
        at_end()
        torch.cuda.profiler.stop()
        close_recording()
        return
    # torch.profiler.profile would import the compiler at its start, in three seconds, to check for CUDA graphs
    use_device = "cuda" if device.type == "cuda" else None
    context = profile(use_device=use_device, use_kineto=True) if profiler == "torch" else nullcontext()
    with _cheap_garbage_collection(profiler), context as torch_profile:
        yield torch_profile
    at_end()
    close_recording()


@contextmanager
def _cheap_garbage_collection(profiler: str) -> Iterator[None]:
    """Keeps garbage collections in a window with ranges from searching older objects. Hooks of the backward passes make
    so many objects that a full collection comes within three steps; with the model `large`, an H200 waits 115 ms."""
    if EMITTER_OF_PROFILER[profiler] == "none":
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def save_capture(torch_profile: profile | None, path: Path | None, device: torch.device) -> None:
    """Writes PyTorch's profile as SQLite; nothing for the other profilers."""
    if torch_profile is not None:
        export_capture(torch_profile, path, on_gpu=device.type == "cuda", torch_version=torch.__version__)
