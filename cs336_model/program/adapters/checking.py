"""Whether a student's code computes what its reference does: one check per quantity, and what happens if it does not.

Whatever is checked (attention, gradients of several processes, an optimizer) gives a list of checks. If an error is too
large, the run ends before anything is timed.
"""

import math
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.targets import UnusableModel, one_line_error
from cs336_model.program.variants.values import FP32
from cs336_model.program.without_times import AS_TF32, RIGHT, WRONG, Check, Failed, WithoutTimes, Wrong


def make_check(
    implementation: str, case: str, precision: str, quantity: str, error: float, tolerance: float,
    tf32_tolerance: float = 0.0,
) -> Check:  # fmt: skip
    """The check with its verdict. In fp32, an error up to `tf32_tolerance` is that of products in TF32, which Triton's
    tl.dot uses by default."""
    if error <= tolerance:
        verdict = RIGHT
    elif precision == FP32 and error <= tf32_tolerance:
        verdict = AS_TF32
    else:
        verdict = WRONG
    finite_error = error if math.isfinite(error) else None
    return Check(implementation, case, precision, quantity, finite_error, tolerance, verdict)


def require_right(checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The checks, as JSON has them. Raises Wrong with the largest error of each wrong quantity, and how many checks are
    wrong."""
    wrong, records = [check for check in checks if check.verdict == WRONG], [asdict(check) for check in checks]
    if not wrong:
        return records
    worst: dict[str, Check] = {}  # by quantity
    for check in wrong:
        worst[check.quantity] = max(worst.get(check.quantity, check), check, key=_error_in_tolerances)
    texts = "; ".join(map(_in_words, worst.values()))
    name = wrong[0].implementation
    raise Wrong(name, f"{len(wrong)} of {len(checks)} checks differ from the reference; the largest: {texts}", records)


def _error_in_tolerances(check: Check) -> float:
    return math.inf if check.error is None else check.error / check.tolerance


def _in_words(check: Check) -> str:
    case = f"({check.case}, {check.precision})"
    if check.error is None:
        return f"{check.quantity} is not finite {case}"
    return f"{check.quantity} by {check.error:.2g}, at most {check.tolerance:.2g} {case}"


@contextmanager
def calling(implementation: str, when: Callable[[], str] | str = "") -> Iterator[None]:
    """A with block that runs a student's code: exceptions become Failed, with one line, and are printed to the log.
    Only an OutOfMemoryError stays as it is. `when` says in which call. With "" as `implementation`, the code is not a
    student's, and nothing changes."""
    try:
        yield
    except (OutOfMemoryError, WithoutTimes):
        raise
    except UnusableModel as error:  # nothing has the name in config.yaml
        if not implementation:
            raise
        raise Failed(implementation, str(error)) from error
    except Exception as error:
        if not implementation:
            raise
        traceback.print_exc()
        which_call = when if isinstance(when, str) else when()
        raise Failed(implementation, f"raised {one_line_error(error)} {which_call}".rstrip()) from error
