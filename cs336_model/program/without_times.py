"""Why a run has no times, as a result of the grid and not as an error: a status and one line. Imports no torch.

A variant does not run on this machine (`unsupported`); attention alone raises an exception, or gives numbers that are
missing or not finite (`failed`); the process reached its time limit (`stopped`). Out of memory has further facts
(out_of_memory.py).
"""

import re

UNSUPPORTED, FAILED, STOPPED = "unsupported", "failed", "stopped"
OVERDUE = "overdue"  # status of the draft that a process writes shortly before its time limit
MAX_CHARACTERS, CUT = 500, " ..."  # length of a reason, and the end of one that was cut
WHERE_IN_PYTORCH = re.compile(r" *\(Triggered internally at [^)]*\)?")  # in PyTorch's warnings; often long
_PATH = re.compile(r"(?<![\w:/])/(?:[\w.+@-]+/)+")


class WithoutTimes(Exception):
    """Ends a measurement without times; only subclasses are raised. The message is one line without paths: the name of
    what was to be measured, and the reason."""

    status: str

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {publishable(reason)}")


class Unsupported(WithoutTimes):
    """This machine lacks what a run needs."""

    status = UNSUPPORTED


class Failed(WithoutTimes):
    """Attention alone raises an exception, or gives numbers that are missing or not finite."""

    status = FAILED


def publishable(text: str) -> str:
    """One line of limited length, with only the last name of every path: it is published with the tables."""
    line = _PATH.sub("", WHERE_IN_PYTORCH.sub("", " ".join(text.split())))
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + CUT
