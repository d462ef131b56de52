"""Why a run has no times, as a result of the grid and not as an error: a status and one line. Imports no torch.

A variant does not run on this machine (`unsupported`); a student's code computes something else (`wrong`), or does not
come to its end (`failed`); the process reached its time limit (`stopped`). Out of memory has further facts
(out_of_memory.py).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

UNSUPPORTED, WRONG, FAILED, STOPPED = "unsupported", "wrong", "failed", "stopped"
UNFINISHED = "unfinished"  # status of the draft of a result while a student's code runs (adapters/draft.py)
OVERDUE = "overdue"  # status of the draft that a process writes shortly before its time limit
RIGHT, AS_TF32 = "right", "right as tf32"
VERDICTS = (RIGHT, AS_TF32, WRONG)  # of a comparison with the reference
MAX_CHARACTERS, CUT = 500, " ..."  # length of a reason, and the end of one that was cut
WHERE_IN_PYTORCH = re.compile(r" *\(Triggered internally at [^)]*\)?")  # in PyTorch's warnings; often long
_PATH = re.compile(r"(?<![\w:/])/(?:[\w.+@-]+/)+")


@dataclass(frozen=True)
class Check:
    """One quantity of a student's code, compared with its reference (adapters/checking.py)."""

    implementation: str  # the value of the dimension: own-triton
    case: str  # what was computed: "length 64, width 16, causal"
    precision: str
    quantity: str  # "output", "gradient of queries"
    error: float | None  # relative; None if a number is not finite
    tolerance: float  # the largest error of a right implementation in this precision
    verdict: str


class WithoutTimes(Exception):
    """Ends a measurement without times; only subclasses are raised. The message is one line without paths: the name of
    what was to be measured, and the reason. `checks` are the comparisons (Check) that were made, as JSON has them."""

    status: str

    def __init__(self, name: str, reason: str, checks: Sequence[Mapping[str, Any]] = ()) -> None:
        super().__init__(f"{name}: {publishable(reason)}")
        self.checks = list(checks)


class Unsupported(WithoutTimes):
    """This machine lacks what a run needs."""

    status = UNSUPPORTED


class Wrong(WithoutTimes):
    """The student's code to be measured does not compute what it should."""

    status = WRONG


class Failed(WithoutTimes):
    """The student's code to be measured raised an exception, or did not return."""

    status = FAILED


def publishable(text: str) -> str:
    """One line of limited length, with only the last name of every path: it is published with the tables."""
    line = _PATH.sub("", WHERE_IN_PYTORCH.sub("", " ".join(text.split())))
    return line if len(line) <= MAX_CHARACTERS else line[:MAX_CHARACTERS] + CUT
