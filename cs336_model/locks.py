"""Locks of this host, so that nothing of ours runs beside a measured step. Imports no torch, and asks CUDA nothing.

Every GPU has a lock, named after its UUID, and the host has one. Who measures on a GPU holds that GPU's lock alone and
shares the host's; who measures on the processor holds the host's lock alone. Who imports, exports or makes tables
shares all locks. Whoever wants locks first passes the turnstile; who waits to be alone waits inside it, so nobody
starts before him. A lock ends with its process, however that ends. Any user of the host can use the files.
"""

import fcntl
import os
import re
import subprocess
import time
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path

LOCKS = Path(os.environ.get("KERNEL_TABLES_LOCKS") or "/tmp/kernel-tables-locks")
TURNSTILE, HOST = "turnstile", "host"
NVIDIA, DEVICES = Path("/proc/driver/nvidia/gpus"), Path("/dev")


class Held:
    """Locks that this process holds until `release`, the end of a with block, or its own end. `names` are the devices,
    `since` and `until` unix seconds (`until` is None while it holds them)."""

    def __init__(self, names: Iterable[str], files: Iterable[int]) -> None:
        self.names, self._files = tuple(names), list(files)
        self.since, self.until = time.time(), None

    def release(self) -> None:
        """Gives the locks up; does nothing the second time."""
        if self.until is None:
            self.until = time.time()
            for file in self._files:  # a child that was forked has the same locks
                fcntl.flock(file, fcntl.LOCK_UN)
            _close(self._files)

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def shared(folder: Path = LOCKS, turnstile: bool = True) -> Held:
    """Waits until nobody measures or waits to measure, and shares all locks of the host. Without the turnstile it does
    not care who waits: to go on with what another process shares already."""
    names = sorted({HOST, *host_gpus(), *visible_gpus()})
    while True:
        files: list[int] = []
        with _pass_turnstile(folder, fcntl.LOCK_SH) if turnstile else nullcontext():
            for name in names:
                if (file := _try_lock(folder, name, fcntl.LOCK_SH)) is None:
                    break
                files.append(file)
        if len(files) == len(names):
            return Held(names, files)
        _close(files)
        os.close(_wait_for(folder, name, fcntl.LOCK_SH))  # it could be had


def exclusive(folder: Path = LOCKS, devices: Iterable[str] = (HOST,), count: int = 1) -> Held:
    """Waits until `count` of these devices are free, and holds them alone: all of them or none, so that two that want
    several cannot stop each other. The caller must not hold any lock."""
    devices = sorted(devices)
    if count > len(devices):
        raise ValueError(f"{count} GPUs are asked for, and {len(devices)} are visible: check CUDA_VISIBLE_DEVICES")
    with _pass_turnstile(folder, fcntl.LOCK_EX):
        while True:
            taken, files = [], []
            if HOST not in devices and (file := _try_lock(folder, HOST, fcntl.LOCK_SH)) is not None:
                files.append(file)
            for name in devices if files or HOST in devices else ():
                if len(taken) < count and (file := _try_lock(folder, name, fcntl.LOCK_EX)) is not None:
                    taken.append(name)
                    files.append(file)
            if len(taken) == count:
                return Held(taken, files)
            _close(files)
            if len(devices) > 1:
                time.sleep(0.02)  # for any of them
            else:
                os.close(_wait_for(folder, HOST, fcntl.LOCK_EX if HOST in devices else fcntl.LOCK_SH))
                os.close(_wait_for(folder, devices[0], fcntl.LOCK_EX))


def host_gpus() -> list[str]:
    """The UUIDs of the GPUs of this host in the order of their buses; [] without a driver."""
    found = []
    for information in sorted(NVIDIA.glob("*/information")):
        lines = (line.partition(":") for line in information.read_text().splitlines())
        facts = {key.strip(): value.strip() for key, _, value in lines}
        uuid, minor = facts.get("GPU UUID", ""), facts.get("Device Minor", "")
        if uuid.startswith("GPU-") and (DEVICES / f"nvidia{minor}").exists():  # else a container must not use it
            found.append(uuid)
    return found or _ask_nvidia_smi()


def visible_gpus() -> list[str]:
    """The names of the GPUs that CUDA_VISIBLE_DEVICES leaves to this process: UUIDs, of GPUs or of parts (MIG)."""
    gpus, variable = host_gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is None:
        return gpus
    visible = []
    for entry in map(str.strip, variable.split(",")):
        if entry.startswith("MIG-"):
            named = [entry]
        elif entry.isdigit():
            named = gpus[int(entry) : int(entry) + 1]
        else:
            named = [gpu for gpu in gpus if entry and gpu.startswith(entry)]
        if not named:  # as CUDA does: what follows an invalid entry is invisible
            break
        visible += named
    return list(dict.fromkeys(visible))


@cache
def _ask_nvidia_smi() -> list[str]:
    """UUIDs by nvidia-smi, which needs no context, for hosts whose /proc does not name the GPUs."""
    with suppress(OSError, subprocess.SubprocessError):
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True, timeout=60).stdout
        return re.findall(r"^GPU \d+:.*\(UUID: (GPU-[0-9a-f-]+)\)", listed, re.MULTILINE)
    return []


def _open(folder: Path, name: str) -> int:
    """A descriptor of a lock's file, which every user may open. A file of another user is opened without the wish to
    create it: in a sticky folder, Linux refuses that."""
    if not folder.exists():
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
    path = folder / name
    with suppress(OSError):  # cleaners of /tmp remove old files, and a new one would be another lock
        os.utime(path)
    while True:
        with suppress(FileNotFoundError):
            try:
                return os.open(path, os.O_RDWR)
            except PermissionError:  # flock needs no right to write, except on NFS
                return os.open(path, os.O_RDONLY)
        with suppress(FileExistsError):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(file, 0o666)  # whatever the umask
            return file


def _try_lock(folder: Path, name: str, kind: int) -> int | None:
    file = _open(folder, name)
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _wait_for(folder: Path, name: str, kind: int) -> int:
    file = _open(folder, name)
    fcntl.flock(file, kind)
    return file


def _pass_turnstile(folder: Path, kind: int) -> Held:
    return Held((TURNSTILE,), [_wait_for(folder, TURNSTILE, kind)])


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())
