"""Keeps facts about this host out of the report of nsys.

A report holds the command line, the working folder, the environment and the host's name. It also holds the name and
*environment* of every process whose /proc/PID/environ nsys may read, such as the user's shell with all its exported
variables. No option of nsys leaves these out. So nsys runs in namespaces that hide other processes and the host's name,
and in a folder of links with neutral names.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from cs336_model.program.loading import OTHER_LINK_PREFIX, WORKING_LINK

SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")  # the same on every host
PATH_LIST_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
PATH_VARIABLES = ("VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME")
HOST_NAME = "localhost"
UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")
AS_USER = ("--user", "--map-root-user")  # lets an ordinary user make the other namespaces, where the system permits it
# Gives nsys its own /dev/shm: it names its shared memory by process id, and these start at 1 in every namespace.
PREPARING_SHELL = ("sh", "-c", f'mount -t tmpfs none /dev/shm && {{ hostname {HOST_NAME}; "$@"; exit $?; }}', "sh")


@cache
def namespace_command() -> tuple[str, ...]:
    """A prefix that hides other processes and the host's name from the command after it; () if not permitted."""
    options = [(), AS_USER] if os.geteuid() == 0 else [AS_USER]
    for user_options in options:
        prefix = (*UNSHARE, *user_options, *PREPARING_SHELL)
        try:
            if subprocess.run([*prefix, "true"], capture_output=True, timeout=20, check=False).returncode == 0:
                return prefix
        except (OSError, subprocess.TimeoutExpired):
            continue
    return ()


class NeutralFolder:
    """A working folder with neutral paths. It has links to the entries of the present working folder and, as aliases,
    links to other paths. `temporary` is the folder for temporary files."""

    def __init__(self, path: Path, temporary: Path):
        self.path = path
        self.temporary = temporary
        self._links: dict[str, str] = {}
        for entry in Path.cwd().iterdir():
            (path / entry.name).symlink_to(entry)
        # cs336_model.program.loading reads it, to recognize files that the program loads through these links
        (path / WORKING_LINK).symlink_to(Path.cwd())

    def alias(self, path: str | os.PathLike) -> str:
        """The path itself if it is the system's, otherwise a link to it in this folder."""
        absolute = os.path.abspath(path)
        if any(absolute == folder or absolute.startswith(f"{folder}/") for folder in SYSTEM_FOLDERS):
            return absolute
        if absolute not in self._links:
            link = self.path / f"{OTHER_LINK_PREFIX}{len(self._links)}"
            link.symlink_to(absolute)
            self._links[absolute] = str(link)
        return self._links[absolute]

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment with aliases instead of paths, and with a folder for temporary files."""
        # HOME has to be set: everybody is root in a user namespace, and may not be able to read root's home
        changes = {"TMPDIR": self.alias(self.temporary), "HOME": self.alias(os.path.expanduser("~"))}
        changes |= {name: self.alias(environment[name]) for name in PATH_VARIABLES if environment.get(name)}
        for name in PATH_LIST_VARIABLES:
            paths = [path for path in environment.get(name, "").split(os.pathsep) if path]
            if paths:
                changes[name] = os.pathsep.join(map(self.alias, paths))
        return {**environment, **changes}

    def command(self, command: Sequence[str]) -> list[str]:
        """The command; if its first word is this interpreter, with a neutral path to it. That path has an alias for the
        entire virtual environment, so that the interpreter finds its packages."""
        if command[0] != sys.executable or not Path(sys.executable).is_relative_to(sys.prefix):
            return list(command)
        return [os.path.join(self.alias(sys.prefix), os.path.relpath(sys.executable, sys.prefix)), *command[1:]]


@contextmanager
def neutral_folder() -> Iterator[NeutralFolder]:
    """A NeutralFolder for a with block. Its temporary files, which may be large, are in TMPDIR."""
    parent = "/tmp" if os.access("/tmp", os.W_OK) else None  # not TMPDIR, whose path may contain the name of the user
    with (
        tempfile.TemporaryDirectory(prefix="profile-", dir=parent) as path,
        tempfile.TemporaryDirectory(prefix="nsys-", ignore_cleanup_errors=True) as temporary,
    ):
        yield NeutralFolder(Path(path), Path(temporary))
