"""What nsys would write about this host into its report, kept from it.

A report holds the command line, the working folder, the environment and the host's name, and the name and *environment*
of every process whose /proc/PID/environ nsys may read: the user's shell and all that it exports among them, whatever
the profiled program itself was given. No option of nsys leaves that out, so it is run where there is nothing to see: in
namespaces without the other processes and the host's name, and in a folder of links whose names tell nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from cs336_model.program.loading import ALIAS, WORKING_LINK

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")  # the same on every host
PATH_LISTS = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
PATHS = ("VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME")
HOST_NAME = "localhost"
NAMESPACES = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")
AS_USER = ("--user", "--map-root-user")  # lets an ordinary user make the other namespaces, where the system permits it
# nsys names its shared memory by process number, which every namespace counts anew: it gets a /dev/shm of its own
PREPARED = ("sh", "-c", f'mount -t tmpfs none /dev/shm && {{ hostname {HOST_NAME}; "$@"; exit $?; }}', "sh")


@cache
def namespace_command() -> tuple[str, ...]:
    """What to put before a command so that it sees no process but its own; () where the system does not permit that."""
    ways = [NAMESPACES] if os.geteuid() == 0 else []
    for way in (*ways, (*NAMESPACES, *AS_USER)):
        try:
            if subprocess.run([*way, *PREPARED, "true"], capture_output=True, timeout=20, check=False).returncode == 0:
                return (*way, *PREPARED)
        except (OSError, subprocess.TimeoutExpired):
            continue
    return ()


class NeutralFolder:
    """A working folder whose paths tell nothing: what lies in the present one is there by links, and so is the rest."""

    def __init__(self, path: Path, temporary: Path):
        self.path = path
        self.temporary = temporary
        self._links: dict[str, str] = {}
        for entry in Path.cwd().iterdir():
            (path / entry.name).symlink_to(entry)
        (path / WORKING_LINK).symlink_to(Path.cwd())

    def alias(self, path: str | os.PathLike) -> str:
        """The path where it is the system's own, else a link in this folder that leads there."""
        absolute = os.path.abspath(path)
        if any(absolute == folder or absolute.startswith(f"{folder}/") for folder in SYSTEM_FOLDERS):
            return absolute
        if absolute not in self._links:
            link = self.path / f"{ALIAS}{len(self._links)}"
            link.symlink_to(absolute)
            self._links[absolute] = str(link)
        return self._links[absolute]

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment with this folder's links in the place of paths, and a folder for temporary files."""
        # named, since a user namespace takes everybody for root, whose home may be closed to them
        changed = {"TMPDIR": self.alias(self.temporary), "HOME": self.alias(os.path.expanduser("~"))}
        changed |= {name: self.alias(environment[name]) for name in PATHS if environment.get(name)}
        for name in PATH_LISTS:
            parts = [part for part in environment.get(name, "").split(os.pathsep) if part]
            if parts:
                changed[name] = os.pathsep.join(self.alias(part) for part in parts)
        return {**environment, **changed}

    def command(self, command: Sequence[str]) -> list[str]:
        """The command with this interpreter, where it leads, by its link; its environment is found from there."""
        if command[0] != sys.executable or not Path(sys.executable).is_relative_to(sys.prefix):
            return list(command)
        return [os.path.join(self.alias(sys.prefix), os.path.relpath(sys.executable, sys.prefix)), *command[1:]]


@contextmanager
def neutral_folder() -> Iterator[NeutralFolder]:
    """A NeutralFolder for the time of a with block; large temporary files go where TMPDIR says."""
    shared = "/tmp" if os.access("/tmp", os.W_OK) else None  # TMPDIR may be a folder of one's own
    with (
        tempfile.TemporaryDirectory(prefix="profile-", dir=shared) as path,
        tempfile.TemporaryDirectory(prefix="nsys-", ignore_cleanup_errors=True) as temporary,
    ):
        yield NeutralFolder(Path(path), Path(temporary))
