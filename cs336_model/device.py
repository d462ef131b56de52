"""The device of a run: how to have it alone, how to wait for it, its memory, and facts about the machine."""

import ctypes
import faulthandler
import gc
import hashlib
import os
import platform
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from timeit import default_timer

import torch

from cs336_model import locks
from cs336_model.results import Machine, OutOfMemory


class Place:
    """A device that this process has alone, from the making of this object, which waits for it, until `leave`. Nothing
    may touch CUDA before."""

    def __init__(self, name: str, folder: Path, started: Path | None = None) -> None:
        """Takes any free GPU that is visible, and hides the others; for "cpu", and without a GPU, the host. The file
        `started` exists while it is taken: a time limit counts then."""
        gpus = [] if name == "cpu" or not torch.backends.cuda.is_built() else locks.visible_gpus()
        if name == "cuda" and not gpus:
            remedy = "check nvidia-smi and CUDA_VISIBLE_DEVICES, or set device: auto or cpu"
            raise SystemExit(f"device is 'cuda', and torch {torch.__version__} finds no GPU: {remedy}")
        start = default_timer()
        self.folder, self.started, self._after = folder, started, None
        self.held = locks.exclusive(folder, gpus or [locks.HOST])
        self.waited_s = default_timer() - start
        if gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = self.held.names[0]
        self.device = torch.device("cuda", 0) if gpus else torch.device("cpu")
        if started:
            started.touch()

    def open(self) -> None:
        """Opens the context of the GPU, whose time is not the model's, or chooses the number of threads."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            torch.empty(1, device=self.device)
            torch.cuda.synchronize()
        else:  # with one thread for each core, all wait for the one that anything interrupts
            cores = len(os.sched_getaffinity(0))
            torch.set_num_threads(max(1, min(torch.get_num_threads(), cores - 1)))

    def leave(self) -> None:
        """Frees memory that nothing refers to, lets another measure, and from then on shares the locks: this process
        may import and export, but not use the device again. Does nothing the second time."""
        if self._after is not None:
            return
        gc.unfreeze()
        if self.device.type == "cuda":
            # Cycles of references hold models; a search takes a tenth of a second, so only if much is left. A batch and
            # the workspace of cuBLAS need less.
            if torch.cuda.memory_allocated() > 256 * 2**20:
                gc.collect()
            torch.cuda.empty_cache()
        self.held.release()
        faulthandler.cancel_dump_traceback_later()
        if self.started:
            self.started.unlink()
        self._after = locks.shared(self.folder)

    def end(self) -> None:
        """Lets another measure after the last use of the device: its context is ended before, with all its memory.
        This process may then do little more than write its result, and must leave by os._exit: PyTorch would look for
        the context."""
        if self.device.type == "cuda":
            with suppress(RuntimeError):  # of a kernel that failed, whose result says so
                torch.cuda.synchronize()
            ctypes.CDLL("libcuda.so.1").cuDevicePrimaryCtxReset_v2(0)  # of the only visible GPU
        self.held.release()

    def alone(self) -> tuple[float, float]:
        """Unix seconds: when it got the device, and when it left it (or now)."""
        return self.held.since, self.held.until or time.time()


def synchronize(device: torch.device) -> None:
    """Waits until the device has finished its work."""
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


def gpu_uuid(device: torch.device) -> str | None:
    """The UUID ("GPU-...") as the driver spells it; None on a CPU, and with PyTorch before 2.5."""
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None) if device.type == "cuda" else None
    return None if uuid is None else f"GPU-{uuid}"


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a GPU or the host has no memory left; PyTorch's allocator of a CPU raises a plain RuntimeError."""
    texts = ("DefaultCPUAllocator", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
    is_named = isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
    return is_named or isinstance(error, (torch.OutOfMemoryError, MemoryError))


def describe_out_of_memory(error: BaseException, during: str) -> OutOfMemory:
    """When memory was missing, and how many bytes were asked for. It does not have the message, which may come from the
    model: results are published."""
    request = re.search(r"[Tt]ried to allocate ([0-9.]+) (bytes|KiB|MiB|GiB)", str(error))
    unit_bytes = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    free_bytes, total_bytes = torch.cuda.mem_get_info() if torch.cuda.is_initialized() else (None, None)
    requested_bytes = round(float(request[1]) * unit_bytes[request[2]]) if request else None
    return OutOfMemory(during=during, requested_bytes=requested_bytes, free_bytes=free_bytes, total_bytes=total_bytes)


def describe_machine(device: torch.device) -> Machine:
    """Device, versions, and the GPU's clock at this moment; None for what is unknown here."""
    on_gpu, uuid = device.type == "cuda", gpu_uuid(device)
    driver, clock_mhz = _ask_driver(uuid) if uuid else (None, None)
    # of all GPUs of the host, so that it stands for the host, whichever GPU was free
    uuids = "\n".join(sorted(locks.host_gpus() or [uuid])) if uuid else None
    cpu_names = re.findall(r"^model name\s*: *(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    cpu_name = cpu_names[0] if cpu_names else platform.processor() or platform.machine()
    return Machine(
        device=device.type, device_name=torch.cuda.get_device_name(device) if on_gpu else cpu_name,
        gpu_uuid_sha256=hashlib.sha256(uuids.encode()).hexdigest() if uuids else None,
        device_bytes=torch.cuda.get_device_properties(device).total_memory if on_gpu else None, driver=driver,
        cuda=torch.version.cuda if on_gpu else None, torch=str(torch.__version__), python=platform.python_version(),
        cpu_name=cpu_name, cores=len(os.sched_getaffinity(0)), threads=torch.get_num_threads(), sm_clock_mhz=clock_mhz,
    )  # fmt: skip


def _ask_driver(uuid: str) -> tuple[str | None, int | None]:
    """(version of the driver, MHz of the GPU's multiprocessors now), by NVML, else by nvidia-smi, which is slower."""
    try:
        import pynvml

        pynvml.nvmlInit()
        gpu, version = pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml.nvmlSystemGetDriverVersion()
        version = version.decode() if isinstance(version, bytes) else version
        return version, pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM)
    except Exception:  # no binding, or one that this driver refuses, each with exceptions of its own
        query = ["--query-gpu=driver_version,clocks.sm", "--format=csv,noheader,nounits"]
        command = ["nvidia-smi", f"--id={uuid}", *query]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
        except (OSError, subprocess.SubprocessError):
            return None, None
        version, _, clock = answer.partition(",")
        return version.strip(), int(clock) if clock.strip().isdigit() else None
