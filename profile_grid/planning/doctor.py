"""What this machine can do for a grid, in ten lines or fewer, and what would make the grid fail here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from profile_grid.host.leases.lease_server import Leases
from profile_grid.planning import estimates
from profile_grid.planning.smoke import Smoke, smoke_capture, smoke_specification
from profile_grid.quantities import counted
from profile_grid.stages.capture.capture_problems import NSYS_TOO_OLD
from profile_grid.stages.capture.nsys_capture import NSYS_MISSING
from profile_grid.study.stages import CAPTURE

GIB = 2**30
OLD_NVTX = "pip install 'nvtx<0.2.12'"
NO_RANGES = "no_ranges"  # the code of the finding


@dataclass(frozen=True)
class Line:
    """One thing about this machine; `failure` when the grid fails on it."""

    topic: str
    text: str
    failure: bool = False


@dataclass(frozen=True)
class Gpu:
    """The GPU as its driver describes it; `cuda` is the newest CUDA that the driver runs. One that shares the host's
    memory tells none of its own (None)."""

    name: str
    driver: str
    cuda: str | None
    total_bytes: int | None
    free_bytes: int | None


@dataclass(frozen=True)
class Host:
    """What was found without PyTorch: None for what is not there."""

    gpu: Gpu | None
    nsys: str | None
    nvtx: str | None
    perf_event_paranoid: int | None
    free_disk_bytes: int
    available_memory_bytes: int | None


@dataclass(frozen=True)
class Trial:
    """What came of trying a little of the workload: the machine, None where none ran; its seconds, and its lines."""

    machine: dict | None
    seconds: float
    lines: list[Line]


def report(host: Host, trial: Trial, plan: dict, left: list, pace: estimates.Pace) -> list[Line]:
    """The lines, in order; `left` are the measurements that are not there yet."""
    device = estimates.first_program(plan["runs"][0])["device"]
    return [
        _gpu(host, device),
        _torch(trial.machine),
        *trial.lines,
        _memory(host, device, {entry["run"]: estimates.needed_by(entry) for entry in plan["runs"]}),
        _time(host, device, plan, left, pace),
    ]


def try_capture(plan: dict, host: Host, left: list, scratch: Path, time_limit_s: float, leases: Leases) -> Trial:
    """What came of a smoke capture of a grid of models."""
    specifications = [entry["specifications"][CAPTURE.name] for entry in plan["runs"]]
    smoke = smoke_capture(smoke_specification(specifications), scratch, time_limit_s, leases)
    return Trial(smoke.machine, smoke.seconds, capture_lines(host, smoke, specifications[0]["backend"], left))


def capture_lines(host: Host, smoke: Smoke, wanted: str, left: list) -> list[Line]:
    """What a smoke capture tells. `wanted`: capture.backend of the configuration."""
    return [
        _nsys(host, smoke),
        _backend(host, smoke, wanted),
        _smoke(smoke),
        _nvtx(host, smoke),
        _perf(host),
        _disk(host, left),
    ]


def cause(lines: list[Line]) -> Line | None:
    """The failure to mend first; that the smoke capture failed is the effect of another, where there is one."""
    failures = sorted((line for line in lines if line.failure), key=lambda line: line.topic == "smoke")
    return failures[0] if failures else None


def _gpu(host: Host, device: str) -> Line:
    """The GPU, its memory and driver."""
    if host.gpu is None:
        what = "none, and device is cuda: check the driver (nvidia-smi), or set device to cpu in config.yaml"
        return Line("GPU", what if device == "cuda" else "none: the grid is measured on the CPU", device == "cuda")
    gpu = host.gpu
    unused = "; not used, since device is cpu" if device == "cpu" else ""
    told = gpu.free_bytes is not None and gpu.total_bytes is not None
    free = f"{gpu.free_bytes / GIB:.1f} of {gpu.total_bytes / GIB:.1f} GiB free" if told else "memory unknown"
    return Line("GPU", f"{gpu.name}, {free}, driver {gpu.driver} (CUDA {gpu.cuda or 'unknown'}){unused}")


def _torch(machine: dict | None) -> Line:
    """PyTorch, as the smoke found it."""
    if machine is None:
        return Line("torch", "did not get to run: see the smoke")
    cuda = f"with CUDA {machine['cuda']}" if machine["cuda"] else f"on {machine['device_name']}"
    return Line("torch", f"{machine['torch']} {cuda}, Python {machine['python']}, {counted(machine['cores'], 'core')}")


def _nsys(host: Host, smoke: Smoke) -> Line:
    if host.nsys is None:
        return Line("nsys", "none on PATH")
    found = host.nsys
    if host.gpu is None:
        return Line("nsys", f"{found}; without a GPU it records ranges, and no kernels")
    if smoke.backend != "nsys":
        return Line("nsys", f"{found}; not used")
    unknown = any(problem and problem.code == NSYS_TOO_OLD for problem in (smoke.problem, *smoke.warnings))
    knows = "does not know" if unknown else "did not complain about"
    return Line("nsys", f"{found}; {knows} the driver's CUDA {host.gpu.cuda or ''}".rstrip())


def _backend(host: Host, smoke: Smoke, wanted: str) -> Line:
    profiler = {"nsys": "Nsight Systems", "torch": "PyTorch's own profiler"}[smoke.backend]
    if wanted == "nsys" and host.nsys is None:
        return Line("captures", NSYS_MISSING.text, failure=True)
    if wanted != "auto":
        return Line("captures", f"{profiler}, as config.yaml says")
    lacking = " and ".join([*(["GPU"] if host.gpu is None else []), *(["nsys"] if host.nsys is None else [])])
    return Line("captures", f"auto is {profiler} here{f': no {lacking}' if lacking else ''}")


def _smoke(smoke: Smoke) -> Line:
    held = f"one step: {counted(smoke.ranges, 'range')} and {counted(smoke.kernels, 'kernel')} in {smoke.seconds:.1f} s"
    if smoke.problem is not None:
        return Line("smoke", f"{held}, incomplete capture: {smoke.problem.quote or smoke.problem}", failure=True)
    on_cpu = {"nsys": " (nsys records none on a CPU)", "torch": " (operators, on a CPU)"}[smoke.backend]
    return Line("smoke", held + (on_cpu if smoke.machine["device"] == "cpu" else ""))


def _nvtx(host: Host, smoke: Smoke) -> Line:
    if smoke.backend != "nsys":
        return Line("nvtx", f"{host.nvtx or 'not installed'}; not used by PyTorch's profiler")
    if host.nvtx is None:
        return Line("nvtx", "not installed, and nsys knows no ranges without it: pip install nvtx", failure=True)
    if smoke.problem and smoke.problem.code == NO_RANGES:
        return Line("nvtx", f"{host.nvtx} is not seen by nsys {host.nsys}: {OLD_NVTX}, or a newer nsys", failure=True)
    return Line("nvtx", f"{host.nvtx}, seen by nsys" if smoke.ranges else f"{host.nvtx}")


def _perf(host: Host) -> Line:
    level = "not told" if host.perf_event_paranoid is None else str(host.perf_event_paranoid)
    return Line("perf", f"perf_event_paranoid {level}; not needed: CPU sampling and context switches are not asked for")


def _disk(host: Host, measurements: list) -> Line:
    needed = estimates.bytes_on_disk(measurements)
    about = "about" if all(estimates.layers(told["program"]) for _, told in measurements) else "at least"
    text = f"{host.free_disk_bytes / GIB:.1f} GiB free; the captures need {about} {needed / GIB:.2f} GiB"
    short = needed > host.free_disk_bytes
    return Line("disk", text + (": free some space, or measure fewer steps in a capture" if short else ""), short)


def _memory(host: Host, device: str, needs: Mapping[str, int | None]) -> Line:
    """What is free where the grid is measured, beside what each run needs, by its name; None where nobody knows."""
    available, known = _free_bytes(host, device), {name: need for name, need in needs.items() if need}
    if not known or available is None:
        free = "not told" if available is None else f"{available / GIB:.1f} GiB free"
        return Line("memory", free if known else f"{free}; what the runs need is not known")
    where, largest = "GPU" if _on_gpu(host, device) else "memory", max(known, key=known.__getitem__)
    text = f"{largest} needs about {known[largest] / GIB:.1f} GiB of the {available / GIB:.1f} GiB of {where} free"
    over = [name for name, need in known.items() if need > available]
    if not over:
        return Line("memory", text)
    names = ", ".join(over[:3]) + (f" and {len(over) - 3} more" if len(over) > 3 else "")
    ending = "will end as out of memory" if where == "GPU" else "may be killed by the operating system (out of memory)"
    return Line("memory", f"{text}; {len(over)} of {counted(len(needs), 'run')} {ending}: {names}")


def _time(host: Host, device: str, plan: dict, measurements: list, pace: estimates.Pace) -> Line:
    every = sum(len(entry["specifications"]) for entry in plan["runs"])
    there = f"{every - len(measurements)} of {counted(every, 'measurement')} there"
    grid = f"grid {plan['grid']}: {counted(len(plan['runs']), 'run')}, {there}"
    if not measurements:
        return Line("time", f"{grid}; nothing is left to measure")
    seconds = estimates.seconds_needed(measurements, pace, _free_bytes(host, device), _on_gpu(host, device))
    about = "about" if pace.flop_per_s else "at least"
    return Line("time", f"{grid}; the others take {about} {_duration(seconds)} ({pace.source})")


def _on_gpu(host: Host, device: str) -> bool:
    """Whether a grid on this device is measured on the GPU."""
    return host.gpu is not None and device != "cpu"


def _free_bytes(host: Host, device: str) -> int | None:
    """What measurements find free where they run."""
    return host.gpu.free_bytes if _on_gpu(host, device) else host.available_memory_bytes


def _duration(seconds: float) -> str:
    """In minutes, or seconds where it is short."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
