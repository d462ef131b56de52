"""What this machine can do: `python -m workflow.scripts doctor --config JSON --runs results/runs`.

Prints ten lines, or five for a grid of attention alone. If the grid would fail here, the lines say why, and the exit
status is 1; otherwise --output also writes them to a file.
"""

import re
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path

from cs336_model import nvidia_smi
from cs336_model.program.loaded_distributions import distribution_version
from kernel_tables.errors import TraceError
from kernel_tables.reading import nsys
from profile_grid.files import write_text
from profile_grid.host import gpu_check, progress
from profile_grid.host.leases.lease_server import leases_for
from profile_grid.planning import estimates
from profile_grid.planning.doctor import DoctorLine, Gpu, Host, first_failure, report
from profile_grid.study.runs import grid_plan
from profile_grid.study.workloads import Workload, workload_of

SMOKE_LIMIT_S = 120  # of the trial, which is a smoke capture if the grid is of models
GPU_FIELDS = ("name", "driver_version", "memory.total", "memory.free")


def main(*, config: dict, runs: Path, output: Path | None = None, time_limit_s: float = SMOKE_LIMIT_S) -> None:
    """Examines this machine for the grid in `config`. Earlier results in the folder `runs` say how fast it measures."""
    plan, workload = grid_plan(config), workload_of(config["grids"][config["grid"]][0])
    lines = examine(plan, workload, runs, min(time_limit_s, SMOKE_LIMIT_S))
    text = "".join(f"{'FAILS' if line.is_failure else 'ok':5} {line.topic:9} {line.text}\n" for line in lines)
    print(text, end="", flush=True)
    if (failure := first_failure(lines)) is not None:
        sys.exit(f"the grid would fail on this machine: {failure.topic}: {failure.text}")
    if output:
        write_text(output, text)


def examine(plan: dict, workload: Workload, runs: Path, time_limit_s: float) -> list[DoctorLine]:
    """Tries a small program of the grid's workload here, and returns the doctor's lines."""
    module, _, function = workload.trial_function.partition(":")
    device = estimates.first_program(plan["runs"][0])["device"]  # that of all runs
    measurements = estimates.remaining_measurements(plan["runs"], runs)
    with leases_for(device, "the doctor's smoke", say=progress.say) as leases, tempfile.TemporaryDirectory() as scratch:
        host = this_host(runs)
        try_workload = getattr(import_module(module), function)
        trial = try_workload(plan, host, measurements, Path(scratch), time_limit_s, leases)
    device_name = trial.machine and trial.machine["device_name"]
    precisions = {run["precision"] for run in plan["runs"]}
    pace = estimates.expected_pace(runs, trial.seconds, device_name, precisions, workload)
    return report(host, trial, plan, measurements, pace)


def this_host(runs: Path) -> Host:
    """The facts of this host that need no PyTorch."""
    folder = next(parent for parent in (runs, *runs.absolute().parents) if parent.exists())
    return Host(
        gpu=_gpu(),
        nsys=_nsys_version() if nsys.find() else None,
        nvtx=distribution_version("nvtx"),
        perf_event_paranoid=_perf_event_paranoid(),
        free_disk_bytes=shutil.disk_usage(folder).free,
        available_memory_bytes=_available_memory_bytes(),
    )


def _gpu() -> Gpu | None:
    """The first visible GPU; None if there is none, or nvidia-smi does not know it."""
    visible = gpu_check.visible_gpus()
    rows = nvidia_smi.gpus(*GPU_FIELDS, gpu=visible[0]) if visible else []
    if not rows:
        return None
    name, driver, total, free = rows[0].values()
    cuda = re.search(r"CUDA Version:\s*([\d.]+)", nvidia_smi.output() or "")
    return Gpu(name, driver, cuda and cuda[1], nvidia_smi.mib_to_bytes(total), nvidia_smi.mib_to_bytes(free))


def _nsys_version() -> str:
    """The version of the nsys on PATH, or the words that take its place after "nsys" in the doctor's lines."""
    try:
        return nsys.version() or "of unknown version"
    except TraceError:
        return "that does not run"


def _perf_event_paranoid() -> int | None:
    path = Path("/proc/sys/kernel/perf_event_paranoid")
    return int(path.read_text()) if path.exists() else None


def _available_memory_bytes() -> int | None:
    path = Path("/proc/meminfo")
    match = re.search(r"MemAvailable:\s*(\d+) kB", path.read_text()) if path.exists() else None
    return int(match[1]) * 1024 if match else None
