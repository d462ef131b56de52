"""The end of a script of the workflow: success, or one line on what is wrong; no temporary files are left."""

import errno
import os
import signal
import sys
from collections.abc import Callable

from kernel_tables.errors import TraceError
from profile_grid.errors import OutsideError

WRITABLE = "make the folder writable, or run in a copy of the project"
NEXT_STEP = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some of your quota",
    errno.EROFS: WRITABLE,
    errno.EACCES: WRITABLE,
    errno.EPERM: WRITABLE,
}


def run_command(main: Callable[[], None]) -> None:
    """Runs `main`. An error outside the project ends the process with status 1 and one line on standard error; a defect
    of the project shows its traceback. A signal to terminate lets every with block clean up first."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    try:
        main()
    except (OutsideError, TraceError) as error:
        sys.exit(str(error))
    except OSError as error:
        if (number := _number(error)) not in NEXT_STEP:
            raise
        verb, path = "open" if number in (errno.EACCES, errno.EPERM) else "write", error.filename or os.getcwd()
        sys.exit(f"cannot {verb} {path}: {os.strerror(number)}; {NEXT_STEP[number]}, then run snakemake again")


def _number(error: OSError) -> int | None:
    """The error's number; errors of Arrow have it only in their message."""
    if error.errno is not None:
        return error.errno
    return next((number for number in NEXT_STEP if os.strerror(number) in str(error)), None)


def _end(number: int, frame: object) -> None:
    sys.exit(128 + number)
