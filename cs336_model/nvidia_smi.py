"""What the driver reports of this host's GPUs: the output of nvidia-smi, which only this module calls, and NVML, the
driver's library, by its Python binding. Imports no torch.

A GPU is named as in nvidia-smi and CUDA_VISIBLE_DEVICES: by its number, or by its UUID ("GPU-...").
"""

import subprocess
from dataclasses import dataclass
from functools import cache
from types import ModuleType

TIMEOUT_S = 20
# Reasons for lower clocks that make times incomparable (nvml.h, nvmlClocksEventReason*).
# Idle (0x1) and clocks set by an application (0x2) are not throttling.
THROTTLE_BITS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


def gpus(*fields: str, gpu: str | None = None) -> list[dict[str, str]]:
    """One dictionary per GPU of the host, or for the named GPU: the text of every field; [] if nvidia-smi fails.

    The fields are those of `nvidia-smi --help-query-gpu`; sizes are in MiB, clocks in MHz.
    """
    rows = [[text.strip() for text in line.split(",")] for line in _query(f"gpu={','.join(fields)}", gpu) or ()]
    return [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields)]


def compute_process_count(gpu: str) -> int | None:
    """The number of programs that compute on a GPU; None if nvidia-smi fails, or writes anything but process ids."""
    lines = _query("compute-apps=pid", gpu)
    return None if lines is None or not all(map(str.isdigit, lines)) else len(lines)


def output(*arguments: str) -> str | None:
    """The output of nvidia-smi for these arguments; None if it is missing or fails."""
    try:
        command = ["nvidia-smi", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def integer(text: str) -> int | None:
    """An integer in the output of nvidia-smi; None for "[N/A]" and the like."""
    return int(text) if text.isdigit() else None


def throttle_reasons(bits: int) -> list[str]:
    """Names of the reasons in an NVML bit mask that slow the GPU down."""
    return [name for bit, name in THROTTLE_BITS.items() if bits & bit]


def throttle_reasons_in(text: str) -> list[str] | None:
    """Names of the reasons in a mask that nvidia-smi wrote ("0x0000000000000004"); None for other texts."""
    return throttle_reasons(int(text, 16)) if text.startswith("0x") else None


def _query(query: str, gpu: str | None) -> list[str] | None:
    """The lines of nvidia-smi's answer that are not blank; None if it fails. Without a GPU, it answers for all."""
    gpu_option = [] if gpu is None else [f"--id={gpu}"]
    answer = output(*gpu_option, f"--query-{query}", "--format=csv,noheader,nounits")
    return None if answer is None else [line.strip() for line in answer.splitlines() if line.strip()]


@cache
def nvml() -> ModuleType | None:
    """NVML's Python binding, initialized; None if that fails. First call it before there is a lease: importing and
    initializing take longer than a query, and meanwhile the GPU would wait."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver, or one that this binding does not know
        return None
    return pynvml


@dataclass(frozen=True)
class GpuState:
    """One reading of a GPU; None for what could not be read. `host_uuids` are the UUIDs of all GPUs of the host; () if
    unknown."""

    driver: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: list[str] | None = None
    processes: int | None = None  # number of processes that compute on the GPU
    used_bytes: int | None = None
    free_bytes: int | None = None
    host_uuids: tuple[str, ...] = ()


def gpu_state(gpu: str | None) -> GpuState:
    """The state of this GPU: from NVML; if that is missing or fails, from nvidia-smi, which takes a tenth of a second
    or more. Nothing is known without a GPU, or if both fail."""
    if gpu is None:
        return GpuState()
    if (pynvml := nvml()) is None:
        return _state_from_smi(gpu)
    try:
        return _state_from_nvml(pynvml, gpu)
    except pynvml.NVMLError:  # NVML differs between drivers, and reports less for a part of a GPU (MIG)
        return _state_from_smi(gpu)


def _state_from_nvml(pynvml: ModuleType, uuid: str) -> GpuState:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)  # as in nvidia-smi
    host_handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    return GpuState(
        driver=as_text(pynvml.nvmlSystemGetDriverVersion()),
        sm_clock_mhz=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
        temperature_c=pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=throttle_reasons(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        processes=len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        used_bytes=memory.used,
        free_bytes=memory.free,
        host_uuids=tuple(as_text(pynvml.nvmlDeviceGetUUID(host_handle)) for host_handle in host_handles),
    )


_STATE_FIELDS = (
    "index", "uuid", "driver_version", "clocks.current.sm", "clocks.current.memory", "temperature.gpu",
    "clocks_throttle_reasons.active", "memory.used", "memory.free",
)  # fmt: skip


def _state_from_smi(gpu: str) -> GpuState:
    rows = gpus(*_STATE_FIELDS)  # of all GPUs, for their UUIDs
    row = next((row for row in rows if gpu in (row["index"], row["uuid"])), None)
    if row is None:
        return GpuState()
    return GpuState(
        driver=row["driver_version"],
        sm_clock_mhz=integer(row["clocks.current.sm"]),
        memory_clock_mhz=integer(row["clocks.current.memory"]),
        temperature_c=integer(row["temperature.gpu"]),
        throttle_reasons=throttle_reasons_in(row["clocks_throttle_reasons.active"]),
        processes=compute_process_count(gpu),
        used_bytes=mib_to_bytes(row["memory.used"]),
        free_bytes=mib_to_bytes(row["memory.free"]),
        host_uuids=tuple(row["uuid"] for row in rows),
    )


def mib_to_bytes(text: str) -> int | None:
    """Bytes of a size that nvidia-smi prints in MiB; None for "[N/A]"."""
    size = integer(text)
    return None if size is None else size * 2**20


def as_text(value: str | bytes) -> str:
    """A text that NVML returned, as str: older bindings return bytes."""
    return value.decode() if isinstance(value, bytes) else value
