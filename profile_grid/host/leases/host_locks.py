"""Locks that hold between all processes of a host, of whichever user.

A lock is a flock on a file of a folder in /tmp. The kernel gives it back when the last process that has the file open
is gone, by SIGKILL too; namespaces make no difference to it. The file says who has it.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import re
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from profile_grid.errors import OutsideError

FOLDER_VARIABLE = "PROFILE_GRID_LEASES"
FOLDER = "/tmp/profile-grid-leases"  # not below TMPDIR, which users and jobs set for themselves
FOR_ALL_USERS = 0o1777  # as /tmp: everybody may make a file, nobody may remove another's

GPU = re.compile(r"GPU-|\d")  # how the name of a GPU begins


class LeaseError(OutsideError):
    """A lock, or as many as are asked for, cannot be had on this host; the message is one line."""


def held_gpus() -> set[str]:
    """The GPUs of this host that somebody has locked at this moment, by the names of their locks."""
    names = [name for name in names_beginning() if GPU.match(name)]
    with ExitStack() as locks:
        return {name for name in names if not locks.enter_context(HostLock(name)).taken(shared=True)}


def names_beginning(beginning: str = "") -> list[str]:
    """The names of all locks that were ever taken on this host and begin so, held or not."""
    return [name for name in os.listdir(_folder()) if name.startswith(beginning)]


class HostLock:
    """The lock of this name, not taken yet; leaving the with block gives it back. Raises FileNotFoundError where there
    is none and none is to be made."""

    def __init__(self, name: str, make: bool = True):
        self.name = name
        self.path = _folder() / re.sub(r"[^\w.-]", "_", name)
        self._make, self._descriptor = make, -1

    def __enter__(self) -> HostLock:
        self._descriptor = _opened(self.path, self._make)
        return self

    def __exit__(self, *exception) -> None:
        os.close(self._descriptor)

    @property
    def file(self) -> int:
        """The descriptor that the lock belongs to: whoever has it open keeps the lock."""
        return self._descriptor

    def taken(self, shared: bool = False) -> bool:
        """Whether the lock was free, and is now held; together with others that share it, where it is shared."""
        try:
            fcntl.flock(self._descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return _is_at(self._descriptor, self.path)  # not so where somebody cleared the folder up, and another made it

    def release(self) -> None:
        """Gives the lock back before the with block ends."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def rename(self, name: str) -> None:
        """Gives the lock another name, with all that its file says; it stays held."""
        self.name, self.path = name, self.path.rename(self.path.with_name(name))

    def holder(self) -> str:
        """Who took the lock last: what it is for, and whose process has it since when."""
        try:
            holder = json.loads(self.path.read_text())
            return f"{holder['what']} (process {holder['process']} of {holder['user']}, since {holder['since']})"
        except (OSError, ValueError, KeyError, TypeError):  # it is just being written, or of another version
            return "another measurement"

    def sign(self, what: str, **further: object) -> None:
        """Writes into the file who has the lock; where the file may only be read, that stays untold."""
        holder = {"what": what, "process": os.getpid(), "user": _user(), "since": time.strftime("%H:%M:%S")} | further
        if fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_RDWR:
            with suppress(OSError):  # the disk is full
                os.truncate(self._descriptor, 0)
                os.pwrite(self._descriptor, json.dumps(holder).encode(), 0)


def _opened(path: Path, make: bool) -> int:
    """A descriptor of the file, which is made where it is not there and is to be; a link of another user is not
    followed."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        if make:
            _make(path, flags)
        return os.open(path, (os.O_RDWR if os.access(path, os.W_OK) else os.O_RDONLY) | flags)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not make:
            raise
        raise _unusable(path, error) from error


def _make(path: Path, flags: int) -> None:
    """Makes the file where there is none. One that is there is opened without O_CREAT, since the kernel refuses that
    for another user's file in a folder like /tmp (fs.protected_regular)."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask: others must be able to take it too
        os.close(descriptor)


def _folder() -> Path:
    folder = Path(os.environ.get(FOLDER_VARIABLE) or FOLDER)
    try:
        folder.mkdir()
        folder.chmod(FOR_ALL_USERS)
    except FileExistsError:
        if folder.is_symlink() or not folder.is_dir():
            raise LeaseError(f"{folder} is no folder; remove it, or set {FOLDER_VARIABLE} to one") from None
    except OSError as error:
        raise _unusable(folder, error) from error
    return folder


def _unusable(path: Path, error: OSError) -> LeaseError:
    return LeaseError(
        f"cannot lock {path}: {error.strerror}; set {FOLDER_VARIABLE} to a folder that all users of this host may write"
    )


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
