"""What this machine can do for a grid, in ten lines or fewer, and why the grid would fail here."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cs336_model.arithmetic.flops import shape_of
from cs336_model.program.variants.predicted_memory import predicted_parts
from profile_grid.host.leases.lease_server import Leases
from profile_grid.planning import estimates
from profile_grid.planning.smoke import SmokeCapture, smoke_capture, smoke_specification
from profile_grid.quantities import counted
from profile_grid.stages.capture.capture_problems import NSYS_TOO_OLD
from profile_grid.stages.capture.nsys_capture import NSYS_MISSING
from profile_grid.study.stages import CAPTURE

GIB = 2**30
MOST_PARTS = 3  # components of memory
OLD_NVTX = "pip install 'nvtx<0.2.12'"
NO_RANGES = "no_ranges"  # the code of the finding


@dataclass(frozen=True)
class DoctorLine:
    """One fact about this machine; a `failure` makes the grid fail."""

    topic: str
    text: str
    failure: bool = False


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
    nsys: str | None
    nvtx: str | None
    perf_event_paranoid: int | None
    free_disk_bytes: int
    available_memory_bytes: int | None


@dataclass(frozen=True)
class Trial:
    """The result of a small part of the workload."""

    machine: dict | None  # None if the program did not run
    seconds: float
    lines: list[DoctorLine]


def report(host: Host, trial: Trial, plan: dict, remaining: list, pace: estimates.Pace) -> list[DoctorLine]:
    """The lines, in order; `remaining` are the measurements that are still missing."""
    device = estimates.first_program(plan["runs"][0])["device"]
    return [
        _gpu(host, device),
        _torch(trial.machine),
        *trial.lines,
        _memory(host, device, {entry["run"]: entry for entry in plan["runs"]}),
        _time(host, device, plan, remaining, pace),
    ]


def try_capture(plan: dict, host: Host, remaining: list, scratch: Path, time_limit_s: float, leases: Leases) -> Trial:
    """The smoke capture of a grid of models."""
    specifications = [entry["specifications"][CAPTURE.name] for entry in plan["runs"]]
    smoke = smoke_capture(smoke_specification(specifications), scratch, time_limit_s, leases)
    return Trial(smoke.machine, smoke.seconds, capture_lines(host, smoke, specifications[0]["backend"], remaining))


def capture_lines(host: Host, smoke: SmokeCapture, backend: str, remaining: list) -> list[DoctorLine]:
    """The lines about a smoke capture. `backend`: capture.backend of the configuration."""
    return [
        _nsys(host, smoke),
        _backend(host, smoke, backend),
        _smoke(smoke),
        _nvtx(host, smoke),
        _perf(host),
        _disk(host, remaining),
    ]


def cause(lines: list[DoctorLine]) -> DoctorLine | None:
    """The failure to fix first; a failed smoke capture is usually the effect of another."""
    failures = sorted((line for line in lines if line.failure), key=lambda line: line.topic == "smoke")
    return failures[0] if failures else None


def _gpu(host: Host, device: str) -> DoctorLine:
    """The GPU, its memory and driver."""
    if host.gpu is None:
        missing = "none, and device is cuda: check the driver (nvidia-smi), or set device to cpu in config.yaml"
        return DoctorLine(
            "GPU", missing if device == "cuda" else "none: the grid is measured on the CPU", device == "cuda"
        )
    gpu = host.gpu
    unused = "; not used, since device is cpu" if device == "cpu" else ""
    is_known = gpu.free_bytes is not None and gpu.total_bytes is not None
    free = f"{gpu.free_bytes / GIB:.1f} of {gpu.total_bytes / GIB:.1f} GiB free" if is_known else "memory unknown"
    return DoctorLine("GPU", f"{gpu.name}, {free}, driver {gpu.driver} (CUDA {gpu.cuda or 'unknown'}){unused}")


def _torch(machine: dict | None) -> DoctorLine:
    """PyTorch, from the smoke capture."""
    if machine is None:
        return DoctorLine("torch", "did not run: see the line smoke")
    cuda = f"with CUDA {machine['cuda']}" if machine["cuda"] else f"on {machine['device_name']}"
    return DoctorLine(
        "torch", f"{machine['torch']} {cuda}, Python {machine['python']}, {counted(machine['cores'], 'core')}"
    )


def _nsys(host: Host, smoke: SmokeCapture) -> DoctorLine:
    if host.nsys is None:
        return DoctorLine("nsys", "none on PATH")
    if host.gpu is None:
        return DoctorLine("nsys", f"{host.nsys}; without a GPU it records ranges, but no kernels")
    if smoke.backend != "nsys":
        return DoctorLine("nsys", f"{host.nsys}; not used")
    unknown = any(problem and problem.code == NSYS_TOO_OLD for problem in (smoke.problem, *smoke.warnings))
    knows = "does not know" if unknown else "did not complain about"
    return DoctorLine("nsys", f"{host.nsys}; {knows} the driver's CUDA {host.gpu.cuda or ''}".rstrip())


def _backend(host: Host, smoke: SmokeCapture, backend: str) -> DoctorLine:
    profiler = {"nsys": "Nsight Systems", "torch": "PyTorch's own profiler"}[smoke.backend]
    if backend == "nsys" and host.nsys is None:
        return DoctorLine("captures", NSYS_MISSING.text, failure=True)
    if backend != "auto":
        return DoctorLine("captures", f"{profiler}, set in config.yaml")
    lacking = " and ".join([*(["GPU"] if host.gpu is None else []), *(["nsys"] if host.nsys is None else [])])
    return DoctorLine("captures", f"auto is {profiler} here{f': no {lacking}' if lacking else ''}")


def _smoke(smoke: SmokeCapture) -> DoctorLine:
    content = (
        f"one step: {counted(smoke.ranges, 'range')} and {counted(smoke.kernels, 'kernel')} in {smoke.seconds:.1f} s"
    )
    if smoke.problem is not None:
        return DoctorLine(
            "smoke", f"{content}, incomplete capture: {smoke.problem.quote or smoke.problem}", failure=True
        )
    on_cpu = {"nsys": " (nsys records none on a CPU)", "torch": " (operators, on a CPU)"}[smoke.backend]
    return DoctorLine("smoke", content + (on_cpu if smoke.machine["device"] == "cpu" else ""))


def _nvtx(host: Host, smoke: SmokeCapture) -> DoctorLine:
    if smoke.backend != "nsys":
        return DoctorLine("nvtx", f"{host.nvtx or 'not installed'}; not used by PyTorch's profiler")
    if host.nvtx is None:
        return DoctorLine(
            "nvtx", "not installed, and nsys records no ranges without it: pip install nvtx", failure=True
        )
    if smoke.problem and smoke.problem.code == NO_RANGES:
        return DoctorLine(
            "nvtx", f"{host.nvtx} is not seen by nsys {host.nsys}: {OLD_NVTX}, or a newer nsys", failure=True
        )
    return DoctorLine("nvtx", f"{host.nvtx}, seen by nsys" if smoke.ranges else f"{host.nvtx}")


def _perf(host: Host) -> DoctorLine:
    level = "unknown" if host.perf_event_paranoid is None else str(host.perf_event_paranoid)
    return DoctorLine(
        "perf", f"perf_event_paranoid {level}; not needed: CPU sampling and context switches are not recorded"
    )


def _disk(host: Host, measurements: list) -> DoctorLine:
    needed = estimates.bytes_on_disk(measurements)
    about = (
        "about" if all(estimates.layers(specification["program"]) for _, specification in measurements) else "at least"
    )
    text = f"{host.free_disk_bytes / GIB:.1f} GiB free; the captures need {about} {needed / GIB:.2f} GiB"
    is_short = needed > host.free_disk_bytes
    return DoctorLine(
        "disk", text + (": free some space, or measure fewer steps in a capture" if is_short else ""), is_short
    )


def _memory(host: Host, device: str, entries: Mapping[str, dict]) -> DoctorLine:
    """Free memory, compared with the needs of the runs, by name their entries in the plan; of the run with the largest
    need, its components."""
    needs = {name: estimates.needed_by(entry) for name, entry in entries.items()}
    available, known = _free_bytes(host, device), {name: need for name, need in needs.items() if need}
    if not known or available is None:
        free = "unknown" if available is None else f"{available / GIB:.1f} GiB free"
        return DoctorLine("memory", free if known else f"{free}; the needs of the runs are unknown")
    kind, largest = "GPU" if _on_gpu(host, device) else "memory", max(known, key=known.__getitem__)
    needed = f"{largest} needs about {known[largest] / GIB:.1f} GiB{_components(entries[largest])}"
    text = f"{needed} of the {available / GIB:.1f} GiB of {kind} free"
    over = [name for name, need in known.items() if need > available]
    if not over:
        return DoctorLine("memory", text)
    names = ", ".join(over[:3]) + (f" and {len(over) - 3} more" if len(over) > 3 else "")
    ending = "will end as out of memory" if kind == "GPU" else "may be killed by the operating system (out of memory)"
    return DoctorLine("memory", f"{text}; {len(over)} of {counted(len(needs), 'run')} {ending}: {names}")


def _components(entry: dict) -> str:
    """The largest components of what a run needs; empty for other people's models and attention alone."""
    program = estimates.first_program(entry)
    shape = shape_of(program)
    if shape is None:
        return ""
    parts = sorted(predicted_parts(shape, program["dimensions"]).items(), key=lambda item: -item[1])[:MOST_PARTS]
    return f" (at most {', '.join(f'{name} {size / GIB:.1f}' for name, size in parts)})"


def _time(host: Host, device: str, plan: dict, measurements: list, pace: estimates.Pace) -> DoctorLine:
    total = sum(len(entry["specifications"]) for entry in plan["runs"])
    finished = f"{total - len(measurements)} of {counted(total, 'measurement')} finished"
    grid = f"grid {plan['grid']}: {counted(len(plan['runs']), 'run')}, {finished}"
    if not measurements:
        return DoctorLine("time", f"{grid}; nothing is left to measure")
    seconds = estimates.seconds_needed(measurements, pace, _free_bytes(host, device), _on_gpu(host, device))
    about = "about" if pace.flop_per_s else "at least"
    return DoctorLine("time", f"{grid}; the others take {about} {_duration(seconds)} ({pace.source})")


def _on_gpu(host: Host, device: str) -> bool:
    """Whether a grid on this device is measured on the GPU."""
    return host.gpu is not None and device != "cpu"


def _free_bytes(host: Host, device: str) -> int | None:
    """The free memory of the device on which the grid is measured."""
    return host.gpu.free_bytes if _on_gpu(host, device) else host.available_memory_bytes


def _duration(seconds: float) -> str:
    """In minutes, or in seconds below 90."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
