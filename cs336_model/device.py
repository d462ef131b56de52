"""The device of a run: how to have it alone, how to wait for it, its memory, and facts about the machine."""

import gc
import os
import platform
import re
from contextlib import suppress
from pathlib import Path
from timeit import default_timer

import torch

from cs336_model import locks
from cs336_model.results import Machine, OutOfMemory


class Place:
    """A device that this process has alone, from the making of this object, which waits for it, until `leave`. Nothing
    may touch CUDA before."""

    def __init__(self, name: str, folder: Path, started: Path) -> None:
        """Takes any free GPU that is visible, and hides the others; for "cpu", and without a GPU, the host. The file
        `started` exists while it is taken: a time limit counts then."""
        gpus = [] if name == "cpu" or not torch.backends.cuda.is_built() else locks.visible_gpus()
        if name == "cuda" and not gpus:
            remedy = "check nvidia-smi and CUDA_VISIBLE_DEVICES, or set device: auto or cpu"
            raise SystemExit(f"device is 'cuda', and torch {torch.__version__} finds no GPU: {remedy}")
        self.folder, self.started = folder, started
        self.held = locks.exclusive(folder, gpus or [locks.HOST])
        if gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.held.names[0]
        self.device = torch.device("cuda", 0) if gpus else torch.device("cpu")
        started.touch()

    def open(self, threads: int | None = None) -> None:
        """Opens the context of the GPU, whose time is not the model's. On a CPU, sets the number of threads: with one
        for each core, all would wait for the one that anything interrupts."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.empty(1, device=self.device)
            torch.cuda.synchronize()
        else:
            threads = threads or min(torch.get_num_threads(), len(os.sched_getaffinity(0)) - 1)
            torch.set_num_threads(max(1, threads))

    def leave(self) -> None:
        """Frees memory that nothing refers to, and lets another measure: this process may not use the device again."""
        self.free()
        self.held.release()
        self.started.unlink()

    def share(self) -> None:
        """Leaves, the first time, and shares the locks until this process ends: it may import and export."""
        if self.held.files:
            self.leave()
            locks.shared(self.folder)

    def free(self) -> None:
        """Gives back the memory of the device that nothing refers to."""
        gc.unfreeze()
        if self.device.type == "cuda":
            # Cycles of references hold models; a search takes a tenth of a second, so only if much is left. A batch and
            # the workspace of cuBLAS need less.
            if torch.cuda.memory_allocated(self.device) > 256 * 2**20:
                gc.collect()
            with suppress(RuntimeError):  # of a kernel that failed, whose result says so
                torch.cuda.empty_cache()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def mark_moment(device: torch.device) -> "torch.cuda.Event | float":
    """This moment: on a GPU, an event on its stream, so that nothing waits; on a CPU, the time of default_timer."""
    if device.type != "cuda":
        return default_timer()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(start: "torch.cuda.Event | float", end: "torch.cuda.Event | float") -> float:
    """The seconds between two moments of a device, which must be idle now."""
    return end - start if isinstance(end, float) else start.elapsed_time(end) / 1e3


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a GPU or the host has no memory left; PyTorch's allocator of a CPU raises a plain RuntimeError."""
    texts = ("DefaultCPUAllocator", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    is_named = isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
    return is_named or isinstance(error, (torch.OutOfMemoryError, MemoryError))


def describe_out_of_memory(error: BaseException, during: str) -> OutOfMemory:
    """When memory was missing, and how much was asked for; not the message, since results are published."""
    request = re.search(r"[Tt]ried to allocate ([0-9.]+) (bytes|KiB|MiB|GiB)", str(error))
    unit_bytes = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    requested_bytes = round(float(request[1]) * unit_bytes[request[2]]) if request else None
    total_bytes = torch.cuda.mem_get_info()[1] if torch.cuda.is_initialized() else None
    return OutOfMemory(during=during, requested_bytes=requested_bytes, total_bytes=total_bytes)


def describe_machine(device: torch.device) -> Machine:
    """The device and versions; None for what is unknown here."""
    cpu_names = re.findall(r"^model name\s*: *(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cpu_name = cpu_names[0] if cpu_names else platform.machine()
    machine = Machine(
        device=device.type, device_name=cpu_name, torch=str(torch.__version__), python=platform.python_version(),
        cpu_name=cpu_name, cores=len(os.sched_getaffinity(0)), threads=torch.get_num_threads(),
    )  # fmt: skip
    if device.type == "cuda":
        machine.device_name, machine.cuda = torch.cuda.get_device_name(device), torch.version.cuda
    return machine
