"""What this machine can do for a grid, in ten lines or fewer, and why the grid would fail here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from profile_grid.host.leases.lease_server import Leases
from profile_grid.planning import estimates
from profile_grid.planning.estimates import Measurement
from profile_grid.planning.smoke import SmokeCapture, smoke_capture, smoke_specification
from profile_grid.quantities import GIBIBYTE, counted
from profile_grid.stages.capture.capture_problems import NSYS_TOO_OLD
from profile_grid.stages.capture.nsys_capture import NSYS_MISSING
from profile_grid.study.stages import CAPTURE

MAX_RUNS = 3  # named in a line
INSTALL_OLD_NVTX = "pip install 'nvtx<0.2.12'"
NO_RANGES = "no_ranges"  # the code of the problem of a capture without ranges


@dataclass(frozen=True)
class DoctorLine:
    """One fact about this machine; `is_failure` if the grid would fail because of it."""

    topic: str
    text: str
    is_failure: bool = False


@dataclass(frozen=True)
class Gpu:
    """The GPU, from its driver."""

    name: str
    driver: str
    cuda: str | None  # the newest version that the driver runs
    total_bytes: int | None  # None if it shares the host's memory
    free_bytes: int | None


@dataclass(frozen=True)
class Host:
    """The machine, as far as it is known without PyTorch; None for what is missing."""

    gpu: Gpu | None
    nsys: str | None  # its version, or in place of that "of unknown version" or "that does not run"
    nvtx: str | None  # the version of the package
    perf_event_paranoid: int | None
    free_disk_bytes: int
    available_memory_bytes: int | None


@dataclass(frozen=True)
class Trial:
    """The result of measuring a small part of the workload; of models, this is the smoke capture."""

    machine: dict | None  # None if the program did not run
    seconds: float
    lines: list[DoctorLine]


def report(
    host: Host, trial: Trial, plan: dict, measurements: list[Measurement], pace: estimates.Pace
) -> list[DoctorLine]:
    """The lines, in order; `measurements` are those that are still missing."""
    device = estimates.first_program(plan["runs"][0])["device"]  # that of all runs
    return [
        _gpu_line(host, device),
        _torch_line(trial.machine),
        *trial.lines,
        _memory_line(host, device, {entry["run"]: entry for entry in plan["runs"]}),
        _time_line(host, device, plan, measurements, pace),
    ]


def try_capture(
    plan: dict, host: Host, measurements: list[Measurement], scratch: Path, time_limit_s: float, leases: Leases
) -> Trial:
    """The smoke capture of a grid of models."""
    specifications = [entry["specifications"][CAPTURE.name] for entry in plan["runs"]]
    smoke = smoke_capture(smoke_specification(specifications), scratch, time_limit_s, leases)
    return Trial(smoke.machine, smoke.seconds, capture_lines(host, smoke, specifications[0]["backend"], measurements))


def capture_lines(host: Host, smoke: SmokeCapture, backend: str, measurements: list[Measurement]) -> list[DoctorLine]:
    """The lines about a smoke capture. `backend` is that of the configuration: nsys, torch or auto."""
    return [
        _nsys_line(host, smoke),
        _backend_line(host, smoke, backend),
        _smoke_line(smoke),
        _nvtx_line(host, smoke),
        _perf_line(host),
        _disk_line(host, measurements),
    ]


def first_failure(lines: list[DoctorLine]) -> DoctorLine | None:
    """The failure to fix first; a failed smoke capture is usually the effect of another. None if nothing fails."""
    return min((line for line in lines if line.is_failure), key=lambda line: line.topic == "smoke", default=None)


def _gpu_line(host: Host, device: str) -> DoctorLine:
    if host.gpu is None and device == "cuda":
        text = "none, and device is cuda: check the driver (nvidia-smi), or set device to cpu in config.yaml"
        return DoctorLine("GPU", text, is_failure=True)
    if host.gpu is None:
        return DoctorLine("GPU", "none: the grid is measured on the CPU")
    gpu = host.gpu
    unused = "; not used, since device is cpu" if device == "cpu" else ""
    is_known = gpu.free_bytes is not None and gpu.total_bytes is not None
    free = (
        f"{gpu.free_bytes / GIBIBYTE:.1f} of {gpu.total_bytes / GIBIBYTE:.1f} GiB free"
        if is_known
        else "memory unknown"
    )
    return DoctorLine("GPU", f"{gpu.name}, {free}, driver {gpu.driver} (CUDA {gpu.cuda or 'unknown'}){unused}")


def _torch_line(machine: dict | None) -> DoctorLine:
    if machine is None:
        return DoctorLine("torch", "did not run: see the line smoke")
    cuda = f"with CUDA {machine['cuda']}" if machine["cuda"] else f"on {machine['device_name']}"
    cores = counted(machine["cores"], "core")
    return DoctorLine("torch", f"{machine['torch']} {cuda}, Python {machine['python']}, {cores}")


def _nsys_line(host: Host, smoke: SmokeCapture) -> DoctorLine:
    if host.nsys is None:
        return DoctorLine("nsys", "none on PATH")
    if host.gpu is None:
        return DoctorLine("nsys", f"{host.nsys}; without a GPU it records ranges, but no kernels")
    if smoke.backend != "nsys":
        return DoctorLine("nsys", f"{host.nsys}; not used")
    is_too_old = any(problem and problem.code == NSYS_TOO_OLD for problem in (smoke.problem, *smoke.warnings))
    verb = "does not know" if is_too_old else "did not complain about"
    return DoctorLine("nsys", f"{host.nsys}; {verb} the driver's CUDA {host.gpu.cuda or ''}".rstrip())


def _backend_line(host: Host, smoke: SmokeCapture, backend: str) -> DoctorLine:
    profiler = {"nsys": "Nsight Systems", "torch": "PyTorch's own profiler"}[smoke.backend]
    if backend == "nsys" and host.nsys is None:
        return DoctorLine("captures", NSYS_MISSING.text, is_failure=True)
    if backend != "auto":
        return DoctorLine("captures", f"{profiler}, set in config.yaml")
    missing = " and ".join(name for name, value in (("GPU", host.gpu), ("nsys", host.nsys)) if value is None)
    return DoctorLine("captures", f"auto is {profiler} here{f': no {missing}' if missing else ''}")


def _smoke_line(smoke: SmokeCapture) -> DoctorLine:
    ranges, kernels = counted(smoke.ranges, "range"), counted(smoke.kernels, "kernel")
    text = f"one step: {ranges} and {kernels} in {smoke.seconds:.1f} s"
    if smoke.problem is not None:
        text = f"{text}, incomplete capture: {smoke.problem.quote or smoke.problem}"
        return DoctorLine("smoke", text, is_failure=True)
    if smoke.machine["device"] == "cpu":
        text += {"nsys": " (nsys records none on a CPU)", "torch": " (operators, on a CPU)"}[smoke.backend]
    return DoctorLine("smoke", text)


def _nvtx_line(host: Host, smoke: SmokeCapture) -> DoctorLine:
    if smoke.backend != "nsys":
        return DoctorLine("nvtx", f"{host.nvtx or 'not installed'}; not used by PyTorch's profiler")
    if host.nvtx is None:
        text = "not installed, and nsys records no ranges without it: pip install nvtx"
        return DoctorLine("nvtx", text, is_failure=True)
    if smoke.problem and smoke.problem.code == NO_RANGES:
        text = f"{host.nvtx} is not seen by nsys {host.nsys}: {INSTALL_OLD_NVTX}, or a newer nsys"
        return DoctorLine("nvtx", text, is_failure=True)
    return DoctorLine("nvtx", f"{host.nvtx}, seen by nsys" if smoke.ranges else host.nvtx)


def _perf_line(host: Host) -> DoctorLine:
    level = "unknown" if host.perf_event_paranoid is None else host.perf_event_paranoid
    text = f"perf_event_paranoid {level}; not needed: CPU sampling and context switches are not recorded"
    return DoctorLine("perf", text)


def _disk_line(host: Host, measurements: list[Measurement]) -> DoctorLine:
    needed_bytes = estimates.bytes_on_disk(measurements)
    layers_are_known = all(estimates.layer_count(specification["program"]) for _, specification in measurements)
    needed = f"{'about' if layers_are_known else 'at least'} {needed_bytes / GIBIBYTE:.2f} GiB"
    text = f"{host.free_disk_bytes / GIBIBYTE:.1f} GiB free; the captures need {needed}"
    if needed_bytes <= host.free_disk_bytes:
        return DoctorLine("disk", text)
    return DoctorLine("disk", f"{text}: free some space, or measure fewer steps in a capture", is_failure=True)


def _memory_line(host: Host, device: str, entries: Mapping[str, dict]) -> DoctorLine:
    """Free memory, compared with what the run with the largest need takes, and how many runs need more than that.
    `entries` has the part of the plan of each run by its name."""
    needed_bytes = {name: estimates.needed_bytes_of_run(entry) or 0 for name, entry in entries.items()}
    are_known, free_bytes = any(needed_bytes.values()), _free_bytes(host, device)
    if not are_known or free_bytes is None:
        free = "unknown" if free_bytes is None else f"{free_bytes / GIBIBYTE:.1f} GiB free"
        return DoctorLine("memory", free if are_known else f"{free}; the needs of the runs are unknown")
    largest = max(needed_bytes, key=needed_bytes.__getitem__)
    needed = f"{largest} needs about {needed_bytes[largest] / GIBIBYTE:.1f} GiB"
    is_on_gpu = _is_on_gpu(host, device)
    text = f"{needed} of the {free_bytes / GIBIBYTE:.1f} GiB of {'GPU' if is_on_gpu else 'memory'} free"
    too_large = [name for name, size in needed_bytes.items() if size > free_bytes]
    if not too_large:
        return DoctorLine("memory", text)
    more = f" and {len(too_large) - MAX_RUNS} more" if len(too_large) > MAX_RUNS else ""
    ending = "will end as out of memory" if is_on_gpu else "may be killed by the operating system (out of memory)"
    return DoctorLine(
        "memory",
        f"{text}; {len(too_large)} of {counted(len(entries), 'run')} {ending}: {', '.join(too_large[:MAX_RUNS])}{more}",
    )


def _time_line(
    host: Host, device: str, plan: dict, measurements: list[Measurement], pace: estimates.Pace
) -> DoctorLine:
    count = sum(len(entry["specifications"]) for entry in plan["runs"])
    finished = f"{count - len(measurements)} of {counted(count, 'measurement')} finished"
    grid = f"grid {plan['grid']}: {counted(len(plan['runs']), 'run')}, {finished}"
    if not measurements:
        return DoctorLine("time", f"{grid}; nothing is left to measure")
    on_gpu = _is_on_gpu(host, device)
    seconds = estimates.seconds_needed(measurements, pace, _free_bytes(host, device), on_gpu=on_gpu)
    about = "about" if pace.flop_per_s else "at least"
    return DoctorLine("time", f"{grid}; the others take {about} {_duration(seconds)} ({pace.source})")


def _is_on_gpu(host: Host, device: str) -> bool:
    """Whether a grid on this device is measured on the GPU."""
    return host.gpu is not None and device != "cpu"


def _free_bytes(host: Host, device: str) -> int | None:
    """The free memory of the device on which the grid is measured."""
    return host.gpu.free_bytes if _is_on_gpu(host, device) else host.available_memory_bytes


def _duration(seconds: float) -> str:
    """The seconds in words: as minutes from 90 s on."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
