"""Whether a student's code computes what its reference does: one check per quantity, and what happens if it does not.

Whatever is checked (attention, gradients of several processes, an optimizer) gives a list of checks; the first that is
too far from the reference ends the run before anything is timed.
"""

import math
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from cs336_model.program.named import UnusableModel, one_line_error
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.variants.values import FP32
from cs336_model.program.without_times import AS_TF32, RIGHT, WRONG, Failed, WithoutTimes, Wrong


@dataclass(frozen=True)
class Check:
    """One quantity of an implementation, compared with its reference."""

    implementation: str  # the value of the dimension: own-triton
    case: str  # what was computed: "length 64, width 16, causal"
    precision: str
    quantity: str  # "output", "gradient of queries"
    error: float | None  # relative; None if a number is not finite
    tolerance: float  # the largest error of a right implementation in this precision
    verdict: str


def check(
    implementation: str, case: str, precision: str, quantity: str, error: float, tolerance: float,
    tf32_tolerance: float = 0.0,
) -> Check:  # fmt: skip
    """The check with its verdict. In fp32, an error up to `tf32_tolerance` is that of products in TF32, which Triton's
    tl.dot uses by default."""
    inexact = AS_TF32 if precision == FP32 and error <= tf32_tolerance else WRONG
    verdict = RIGHT if error <= tolerance else inexact
    known_error = error if math.isfinite(error) else None
    return Check(implementation, case, precision, quantity, known_error, tolerance, verdict)


def require_right(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The checks, as JSON has them. Raises Wrong with the largest error of each wrong quantity, and how many checks are
    wrong."""
    wrong, records = [one for one in checks if one.verdict == WRONG], [asdict(one) for one in checks]
    if not wrong:
        return records
    worst: dict[str, Check] = {}
    for one in wrong:
        if one.quantity not in worst or _size(one) > _size(worst[one.quantity]):
            worst[one.quantity] = one
    texts = "; ".join(map(_in_words, worst.values()))
    name = wrong[0].implementation
    raise Wrong(name, f"{len(wrong)} of {len(checks)} checks differ from the reference; the largest: {texts}", records)


def _size(one: Check) -> float:
    return math.inf if one.error is None else one.error / one.tolerance


def _in_words(one: Check) -> str:
    where = f"({one.case}, {one.precision})"
    if one.error is None:
        return f"{one.quantity} is not finite {where}"
    return f"{one.quantity} by {one.error:.2g}, at most {one.tolerance:.2g} {where}"


@contextmanager
def calling(implementation: str, what: str = "") -> Iterator[None]:
    """A with block that runs a student's code: whatever exception it raises becomes Failed, in one line; the log has
    all of it. `what` says what it was called with."""
    try:
        yield
    except (OutOfMemoryError, WithoutTimes):
        raise
    except UnusableModel as error:  # of the name in config.yaml
        raise Failed(implementation, str(error)) from error
    except Exception as error:
        traceback.print_exc()
        raise Failed(implementation, f"raised {one_line_error(error)}{f' with {what}' if what else ''}") from error
