"""Whether this host would measure with other versions, or on another device, than a result names. Imports no torch."""

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from cs336_model import nvidia_smi
from cs336_model.cpu import cpu_name
from cs336_model.program.lease import GPUS_VARIABLE
from cs336_model.program.loaded_distributions import distribution_version
from kernel_recorder import ncu_profile
from kernel_recorder.nsys_profile import NSYS, TORCH, gpu_is_visible, profiler_of_this_machine
from kernel_tables.errors import TraceError
from kernel_tables.reading import nsys
from profile_grid.freshness.environment import RecordedEnvironment

PREFIX_VARIABLE = "PROFILE_GRID_PREFIX"  # sys.prefix of Snakemake's Python; jobs may run in another
VERSION_CHANGED = "a version has changed"


@dataclass(frozen=True)
class MachineVersions:
    """The kind of device of the machine that ran a program, and the versions of its driver and Python."""

    device: str
    device_name: str
    cpu_name: str
    driver: str | None
    python: str


def set_planners_prefix() -> None:
    """Tells jobs which Python planned them."""
    os.environ[PREFIX_VARIABLE] = sys.prefix


def is_planners_python() -> bool:
    """Whether this is the Python of Snakemake, whose packages a plan can see."""
    return os.environ.get(PREFIX_VARIABLE, sys.prefix) == sys.prefix


def host_record() -> dict[str, Any]:
    """The facts about this host in a result: whether a plan can see the packages that measure, and `gpu_names`."""
    return {"planners_python": is_planners_python(), "gpus": list(gpu_names())}


def is_kind_of_device(machine: MachineVersions) -> bool:
    """Whether this host has the kind of device that a result names."""
    if machine.device == "cpu":
        return machine.device_name == present_cpu_name()
    return machine.device_name in gpu_names()


def is_same_machine(machine: MachineVersions, environment: RecordedEnvironment) -> bool:
    """Whether the versions in a result can be compared with those of this host: this host has the same kind of device,
    and in both cases it is the Python of the plan that measures."""
    return environment.planners_python and is_planners_python() and is_kind_of_device(machine)


def changed_device(
    program: Mapping[str, Any], machine: MachineVersions, environment: RecordedEnvironment
) -> str | None:
    """Why a program with the device `auto` would choose another one here: no GPU was visible when it ran, and one is
    now. None if it would not."""
    if program.get("device") == "auto" and machine.device == "cpu" and not environment.gpus and gpu_names():
        return f"the device has changed: it was the processor and is {gpu_names()[0]}"
    return None


def changed_version(
    machine: MachineVersions, distributions: Mapping[str, str], facts: Mapping, specification: Mapping
) -> str | None:
    """A message on the first version, or the profiler, that differs here, on the same kind of device; or None."""
    versions = [("Python", machine.python, platform.python_version())]
    versions += [(name, recorded, present_version(name)) for name, recorded in distributions.items()]
    versions += [("the driver", machine.driver, driver_version() if machine.device == "cuda" else None)]
    versions += [("nsys", facts.get("nsys"), nsys_version() if facts.get("nsys") else None)]
    versions += [("ncu", facts.get("ncu"), ncu_version() if facts.get("ncu") else None)]
    for name, recorded, current in versions:  # None: unknown, or not used by this measurement
        if recorded is not None and current is not None and recorded != current:
            return f"{VERSION_CHANGED}: {name} was {recorded} and is {current}"
    is_choice = specification.get("backend") == "auto" and specification["program"].get("device") != "cpu"
    if is_choice and facts.get("backend") == TORCH and machine.device == "cuda" and profiler_of_this_machine() == NSYS:
        return "the profiler has changed: it was PyTorch's and is nsys"
    return None


present_version = cache(distribution_version)
present_cpu_name = cache(cpu_name)


@cache
def gpu_names() -> tuple[str, ...]:
    """The names of the GPUs that a program started here can use, in the program's order."""
    return tuple(gpu["name"] for gpu in _gpus())


@cache
def driver_version() -> str | None:
    """The version of the NVIDIA driver; None if it is not known."""
    return next((gpu["driver_version"] for gpu in _gpus()), None)


@cache
def _gpus() -> list[dict[str, str]]:
    """{"uuid", "name", "driver_version"} of each GPU that a program started here can use, in the program's order."""
    visible = os.environ.get(GPUS_VARIABLE)
    if visible == "" or not gpu_is_visible():
        return []
    gpus = _gpus_of_host()
    if visible is None or "MIG-" in visible:  # which GPU a MIG instance is a part of is not known here
        return gpus
    return _chosen_gpus(gpus, visible.split(","))


def _gpus_of_host() -> list[dict[str, str]]:
    if (pynvml := nvidia_smi.nvml()) is None:
        return nvidia_smi.gpus("uuid", "name", "driver_version")
    driver = nvidia_smi.as_text(pynvml.nvmlSystemGetDriverVersion())
    return [
        {
            "uuid": nvidia_smi.as_text(pynvml.nvmlDeviceGetUUID(handle)),
            "name": nvidia_smi.as_text(pynvml.nvmlDeviceGetName(handle)),
            "driver_version": driver,
        }
        for handle in map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
    ]


def _chosen_gpus(gpus: list[dict[str, str]], entries: Iterable[str]) -> list[dict[str, str]]:
    """The GPUs that CUDA shows for the entries of CUDA_VISIBLE_DEVICES: numbers, as in nvidia-smi, and UUIDs or their
    beginnings. The first entry that names no GPU, or several, ends the list."""
    chosen = []
    for entry in map(str.strip, entries):
        fitting = [gpu for number, gpu in enumerate(gpus) if entry == str(number) or gpu["uuid"].startswith(entry)]
        if entry == "" or len(fitting) != 1:
            break
        chosen += fitting
    return chosen


def nsys_version() -> str | None:
    """The version of the nsys on PATH; None if there is none, or if it does not run."""
    path = nsys.find()
    return _nsys_version(path, path.stat().st_mtime_ns, path.stat().st_size) if path else None


@cache
def ncu_version() -> str | None:
    """The version of the ncu on PATH; None if there is none, or if it does not run."""
    path = ncu_profile.find()
    return ncu_profile.version(path) if path else None


@cache
def _nsys_version(path: Path, mtime_ns: int, size: int) -> str | None:
    """The version of the nsys on PATH; the parameters are only the key of the cache, so that a new nsys is asked."""
    try:
        return nsys.version()
    except TraceError:
        return None  # if it matters, the capture says why
