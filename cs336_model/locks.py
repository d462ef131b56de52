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
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from pathlib import Path

LOCKS = Path(os.environ.get("KERNEL_TABLES_LOCKS") or "/tmp/kernel-tables-locks")
TURNSTILE, HOST = "turnstile", "host"
NVIDIA, DEVICES = Path("/proc/driver/nvidia/gpus"), Path("/dev")


class Held(AbstractContextManager):
    """Locks of these devices, which this process holds until `release`, the end of a with block, or its own end."""

    def __init__(self, names: Iterable[str], files: Iterable[int]) -> None:
        self.names, self.files = tuple(names), list(files)

    def release(self) -> None:
        """Gives the locks up; does nothing the second time."""
        while self.files:
            fcntl.flock(self.files[-1], fcntl.LOCK_UN)  # a child that was forked has the same locks
            os.close(self.files.pop())

    def __exit__(self, *_: object) -> None:
        self.release()


def shared(folder: Path = LOCKS, turnstile: bool = True) -> Held:
    """Waits until nobody measures or waits to measure, and shares all locks of the host. Without the turnstile it does
    not care who waits: to go on with what another process shares already."""
    names = sorted({HOST, *host_gpus(), *visible_gpus()})
    while True:
        taken: dict[str, int] = {}
        with Held([TURNSTILE], [_lock(folder, TURNSTILE, fcntl.LOCK_SH)]) if turnstile else nullcontext():
            for name in names:
                if (file := _lock(folder, name, fcntl.LOCK_SH | fcntl.LOCK_NB)) is None:
                    break
                taken[name] = file
        held = Held(names, taken.values())
        if len(taken) == len(names):
            return held
        held.release()
        os.close(_lock(folder, name, fcntl.LOCK_SH))  # it could be had


def exclusive(folder: Path = LOCKS, devices: Iterable[str] = (HOST,), count: int = 1) -> Held:
    """Waits until `count` of these devices are free, and holds them alone: all of them or none, so that two that want
    several cannot stop each other. The caller must not hold any lock."""
    devices = sorted(devices)
    with Held([TURNSTILE], [_lock(folder, TURNSTILE, fcntl.LOCK_EX)]):
        if HOST in devices:
            return Held([HOST], [_lock(folder, HOST, fcntl.LOCK_EX)])
        host = _lock(folder, HOST, fcntl.LOCK_SH)
        while True:
            taken: dict[str, int] = {}
            for name in devices:
                if len(taken) < count and (file := _lock(folder, name, fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
                    taken[name] = file
            if len(taken) == count:
                return Held(taken, [host, *taken.values()])
            for file in taken.values():
                os.close(file)
            time.sleep(0.02)


@cache
def host_gpus() -> dict[str, str]:
    """The names of the GPUs that this process may use, by UUID in the order of their buses. They stand in the driver's
    folder: a program would run beside what others measure. Where that is hidden, nvidia-smi is asked."""
    text = "".join(path.read_text() for path in sorted(NVIDIA.glob("*/information")))
    fields = r"Model:\s*(.*\S)\n(?:.*\n)*?GPU UUID:\s*(GPU-\S+)\n(?:.*\n)*?Device Minor:\s*(\d+)"
    told = re.findall(fields, text)  # of all GPUs, of which a container lacks some
    if found := {uuid: name for name, uuid, minor in told if (DEVICES / f"nvidia{minor}").exists()}:
        return found
    command = ["nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(line.split(", ", 1) for line in listed.splitlines() if line.startswith("GPU-"))


def visible_gpus() -> list[str]:
    """The names of the GPUs that CUDA_VISIBLE_DEVICES leaves to this process: UUIDs, of GPUs or of parts (MIG)."""
    gpus, variable = list(host_gpus()), os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is None:
        return gpus
    visible = []
    for entry in map(str.strip, variable.split(",")):
        if entry.isdigit():
            named = gpus[int(entry) : int(entry) + 1]
        else:
            named = [entry] if entry.startswith("MIG-") else [gpu for gpu in gpus if entry and gpu.startswith(entry)]
        if not named:  # as CUDA does: what follows an invalid entry is invisible
            break
        visible += named
    return list(dict.fromkeys(visible))


def _lock(folder: Path, name: str, kind: int) -> int | None:
    """A descriptor that has the lock; None if another has it, and `kind` says not to wait.

    Every user may open the file, to read: flock needs no more. It is not created where it exists: in a sticky folder,
    Linux refuses that to other users."""
    if not folder.exists():
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(0o1777)
    path = folder / name
    with suppress(OSError):  # cleaners of /tmp remove old files, and a new one would be another lock
        os.utime(path)
    if not path.exists():
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0o666))
            path.chmod(0o666)  # whatever the umask
    file = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(file, kind)
    except BlockingIOError:
        os.close(file)
        return None
    return file
