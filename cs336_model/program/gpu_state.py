"""Driver, clocks, temperature and processes of one GPU: from NVML if its Python binding is installed, else
nvidia-smi."""

from collections.abc import Iterator
from dataclasses import dataclass

from cs336_model import nvidia_smi
from cs336_model.nvidia_smi import integer, throttle_reasons, throttle_reasons_in
from cs336_model.nvml import nvml

_FIELDS = (
    "uuid",
    "driver_version",
    "clocks.current.sm",
    "clocks.current.memory",
    "temperature.gpu",
    "clocks_throttle_reasons.active",
)


@dataclass(frozen=True)
class GpuState:
    """One reading; None for what could not be read. `host_uuids` are those of all GPUs of the host, if known."""

    driver: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: list[str] | None = None
    other_processes: int | None = None
    host_uuids: tuple[str, ...] = ()


def gpu_state(uuid: str | None) -> GpuState:
    """The state of the GPU with this uuid ("GPU-..."); all None without a GPU, NVML and nvidia-smi."""
    if uuid is None:
        return GpuState()
    if (pynvml := nvml()) is None:
        return _state_from_smi(uuid)
    try:
        return _state_from_nvml(pynvml, uuid)
    except pynvml.NVMLError:  # NVML differs between drivers; nvidia-smi comes with the driver that is there
        return _state_from_smi(uuid)


def other_processes(pids: list[int]) -> int | None:
    """The number of the GPU's processes other than this one, which uses it too. This process is not looked up by its
    number: in a container, the driver knows another number. An empty list gives no information (None)."""
    return len(pids) - 1 if pids else None


def _state_from_nvml(pynvml, uuid: str) -> GpuState:
    gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    driver = pynvml.nvmlSystemGetDriverVersion()
    return GpuState(
        driver=driver.decode() if isinstance(driver, bytes) else driver,
        sm_clock_mhz=pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=pynvml.nvmlDeviceGetClockInfo(gpu, pynvml.NVML_CLOCK_MEM),
        temperature_c=pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU),
        throttle_reasons=throttle_reasons(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu)),
        other_processes=other_processes([app.pid for app in pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)]),
        host_uuids=tuple(_uuids_from_nvml(pynvml)),
    )


def _uuids_from_nvml(pynvml) -> Iterator[str]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(index))
        yield uuid.decode() if isinstance(uuid, bytes) else uuid


def _state_from_smi(uuid: str) -> GpuState:
    rows = {row["uuid"]: row for row in nvidia_smi.gpus(*_FIELDS)}
    if uuid not in rows:
        return GpuState()
    _, driver, sm_clock, memory_clock, temperature, throttle = rows[uuid].values()
    return GpuState(
        driver=driver,
        sm_clock_mhz=integer(sm_clock),
        memory_clock_mhz=integer(memory_clock),
        temperature_c=integer(temperature),
        throttle_reasons=throttle_reasons_in(throttle),
        other_processes=other_processes(nvidia_smi.compute_processes(uuid)),
        host_uuids=tuple(rows),
    )
