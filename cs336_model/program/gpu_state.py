"""Driver, clocks, temperature and users of one GPU: from NVML where its Python binding is, else from nvidia-smi."""

import subprocess
from dataclasses import dataclass

# What lowers the clocks for a reason that makes times incomparable (nvml.h, nvmlClocksEventReason*).
# Idle (0x1) and the clocks that an application set (0x2) are no throttling.
_THROTTLE_BITS = {
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}
_SMI_FIELDS = "driver_version,clocks.current.sm,clocks.current.memory,temperature.gpu,clocks_throttle_reasons.active"


@dataclass(frozen=True)
class GpuState:
    """One reading; None for what could not be read."""

    driver: str | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    throttle_reasons: list[str] | None = None
    other_processes: int | None = None


def gpu_state(uuid: str | None) -> GpuState:
    """The state of the GPU with this uuid ("GPU-..."); all None without a GPU or a way to ask the driver."""
    if uuid is None:
        return GpuState()
    try:
        import pynvml
    except ImportError:
        return _state_from_smi(uuid)
    try:
        pynvml.nvmlInit()
        return _state_from_nvml(pynvml, uuid)
    except pynvml.NVMLError:  # NVML differs between drivers; nvidia-smi comes with the driver that is there
        return _state_from_smi(uuid)


def throttle_reasons(bits: int) -> list[str]:
    """Names of the reasons in an NVML bit mask that slow the GPU down."""
    return [name for bit, name in _THROTTLE_BITS.items() if bits & bit]


def other_processes(pids: list[int]) -> int | None:
    """How many of the GPU's processes are not this one, which uses it too. Our own is not looked up by its number: in a
    container the driver knows it by another. A list that is empty while we use the GPU tells nothing (None)."""
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
    )


def _state_from_smi(uuid: str) -> GpuState:
    row = _smi(uuid, f"--query-gpu={_SMI_FIELDS}")
    if row is None or len(values := [value.strip() for value in row.split(",")]) != len(_SMI_FIELDS.split(",")):
        return GpuState()
    driver, sm_clock, memory_clock, temperature, throttle = values
    pids = (_smi(uuid, "--query-compute-apps=pid") or "").split()
    return GpuState(
        driver=driver,
        sm_clock_mhz=_integer(sm_clock),
        memory_clock_mhz=_integer(memory_clock),
        temperature_c=_integer(temperature),
        throttle_reasons=throttle_reasons(int(throttle, 16)) if throttle.startswith("0x") else None,
        other_processes=other_processes([int(pid) for pid in pids if pid.isdigit()]),
    )


def _smi(uuid: str, query: str) -> str | None:
    """What nvidia-smi prints for a query of this GPU; None when it is not there or refuses."""
    command = ["nvidia-smi", f"--id={uuid}", query, "--format=csv,noheader,nounits"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _integer(text: str) -> int | None:
    return int(text) if text.isdigit() else None
