"""Locks that hold between all processes of a host, of any user.

A lock is a flock on a file in one folder, by default in /tmp. Linux releases it when the last process that inherited or
received the open file is gone, after SIGKILL too; namespaces make no difference. The file's content says who has it.
"""

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
DEFAULT_FOLDER = "/tmp/profile-grid-leases"  # not below TMPDIR, which users and jobs set for themselves
FOLDER_MODE = 0o1777  # that of /tmp: everybody may create a file, nobody may remove that of another user
OPEN_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC  # a symbolic link, which another user may have put there, is not followed
GPU_NAME_START = re.compile(r"GPU-|\d")  # a UUID or an index; locks of other things have other names


class LeaseError(OutsideError):
    """A lock cannot be used on this host, or it has too few GPUs for a lease; the message is one line."""


def held_gpus() -> set[str]:
    """The names of the GPUs of this host that somebody has locked at this moment."""
    names = [name for name in lock_names() if GPU_NAME_START.match(name)]
    with ExitStack() as locks:
        return {name for name in names if not locks.enter_context(HostLock(name)).try_lock(shared=True)}


def lock_names(prefix: str = "") -> list[str]:
    """The file names with this prefix of all locks of this host, held or not."""
    return [name for name in os.listdir(_folder()) if name.startswith(prefix)]


class HostLock:
    """The lock with this name, for a with block. Entering the block opens the file, but does not lock it. Leaving it
    releases the lock, unless another process has received the open file. Without `create`, entering raises
    FileNotFoundError if there is no such lock."""

    def __init__(self, name: str, create: bool = True):
        self.name = name
        self.path = _folder() / re.sub(r"[^\w.-]", "_", name)
        self._may_create = create
        self.descriptor = -1  # of the open file: every process that receives it keeps the lock

    def __enter__(self) -> "HostLock":
        try:
            if self._may_create:
                _create_file(self.path)
            access = os.O_RDWR if os.access(self.path, os.W_OK) else os.O_RDONLY
            self.descriptor = os.open(self.path, access | OPEN_FLAGS)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not self._may_create:
                raise
            raise _unusable(self.path, error) from error
        return self

    def __exit__(self, *exception) -> None:
        os.close(self.descriptor)

    def try_lock(self, shared: bool = False) -> bool:
        """Whether the lock is now held: it was free, or `shared` is true and all others who hold it share it. A lock
        that this object holds already becomes exclusive or shared."""
        try:
            fcntl.flock(self.descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            return os.path.samestat(os.fstat(self.descriptor), os.stat(self.path))  # nobody has replaced the file
        except (BlockingIOError, FileNotFoundError):
            return False

    def release(self) -> None:
        """Releases the lock before the with block ends."""
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def rename(self, name: str) -> None:
        """Gives the lock and its file another name; a held lock stays held."""
        self.name, self.path = name, self.path.rename(self.path.with_name(name))

    def holder(self) -> str:
        """Who signed it last: the purpose, and the process, its user and since when."""
        try:
            signature = json.loads(self.path.read_text())
            who = f"process {signature['process']} of {signature['user']}, since {signature['since']}"
            return f"{signature['what']} ({who})"
        except (OSError, ValueError, KeyError, TypeError):  # the file is just being written, or is of another version
            return "another measurement"

    def sign(self, purpose: str, **details: object) -> None:
        """Writes into the file who has the lock and for what, unless the file may only be read."""
        signature = {"what": purpose, "process": os.getpid(), "user": _user(), "since": time.strftime("%H:%M:%S")}
        if fcntl.fcntl(self.descriptor, fcntl.F_GETFL) & os.O_RDWR:
            with suppress(OSError):  # the disk is full; the lock holds without a signature
                os.truncate(self.descriptor, 0)
                os.pwrite(self.descriptor, json.dumps(signature | details).encode(), 0)


def _create_file(path: Path) -> None:
    """Creates the file if it is missing. An existing one is opened without O_CREAT, since Linux refuses that for
    another user's file in a folder like /tmp (fs.protected_regular)."""
    with suppress(FileExistsError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN_FLAGS, 0o666)
        os.fchmod(descriptor, 0o666)  # whatever the umask: others must be able to lock it too
        os.close(descriptor)


def _folder() -> Path:
    folder = Path(os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER)
    try:
        folder.mkdir()
        folder.chmod(FOLDER_MODE)
    except FileExistsError:
        if folder.is_symlink() or not folder.is_dir():
            raise LeaseError(f"{folder} is not a folder; remove it, or set {FOLDER_VARIABLE} to one") from None
    except OSError as error:
        raise _unusable(folder, error) from error
    return folder


def _unusable(path: Path, error: OSError) -> LeaseError:
    return LeaseError(
        f"cannot lock {path}: {error.strerror}; set {FOLDER_VARIABLE} to a folder that all users of this host may write"
    )


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
