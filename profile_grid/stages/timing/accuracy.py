"""How far each run's first step is from one in fp64, and whether its precision explains that."""

from __future__ import annotations

import pandas as pd

from cs336_model.program.variants.values import FP32, UNIT_ROUNDOFF
from profile_grid.results.load_runs import MeasuredRun
from profile_grid.results.results import Accuracy
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import TableSpec, columns

# Found on a CPU with 2 to 48 layers: logits of fp32 are off by 5 to 13 roundings, those of bf16 by 1 to 3, with bf16
# weights by 2 to 5. What is beyond rounding (a missing mask or scale, another precision) is off by far more.
ROUNDINGS_EXPLAINED = 8
SUMS_EXPLAINED = 128 * UNIT_ROUNDOFF[FP32]  # products are summed in fp32 in every precision
ERRORS = ("loss_error", "logits_error", "gradient_norm_error")


def explained_error(precision: str) -> float:
    """The largest relative error that a precision explains."""
    return ROUNDINGS_EXPLAINED * UNIT_ROUNDOFF[precision] + SUMS_EXPLAINED


def accuracy_table(runs: list[MeasuredRun]) -> pd.DataFrame:
    """One row per timed run of this package's model: its relative errors, what its precision explains, and whether it
    is within that."""
    rows = []
    for run in runs:
        accuracy = _found(run)
        if accuracy is None:
            continue
        errors = {name: getattr(accuracy, name) for name in ERRORS}
        explained = explained_error(run.leading["precision"])
        known = [error for error in errors.values() if error is not None]
        within = max(known) <= explained if known else None
        rows.append(
            run.leading | errors | {"explained_error": explained, "within_precision": within, "reason": accuracy.reason}
        )
    return ACCURACY.table(rows)


def accuracy_notes(run: MeasuredRun) -> list[str]:
    """A note on a run that is further off than its precision explains: it may not compute the same function."""
    accuracy, explained = _found(run), explained_error(run.leading["precision"])
    off = {name: getattr(accuracy, name) for name in ERRORS if accuracy and getattr(accuracy, name) is not None}
    return [
        f"{name.removesuffix('_error').replace('_', ' ')} off by {error:.1e} of fp64, and {run.leading['precision']}"
        f" explains {explained:.1e}: this may be another function"
        for name, error in off.items()
        if error > explained
    ]


def _found(run: MeasuredRun) -> Accuracy | None:
    timing = run.results.get(TIMING.name)
    return timing.program.accuracy if timing and timing.program else None


ACCURACY = TableSpec(
    "accuracy",
    "One row per timed run: its first step against an eager one in fp64 with the same weights and tokens, those of"
    " the whole batch where GPUs share it",
    columns("""
    loss_error | float | | relative error of the loss
    logits_error | float | | relative error of the logits, in the Euclidean norm
    gradient_norm_error | float | | that of the norm of all gradients once reduced, the largest of all ranks; empty \
        without them
    explained_error | float | | the largest of these that the precision explains
    within_precision | bool | | whether all of them are within that
    reason | text | | why there are no errors: an fp64 run that does not fit into memory, a model of somebody else
"""),
)
