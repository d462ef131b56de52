"""What a rule finds in how steps differ. It gives what it found, or None."""

from __future__ import annotations

import numpy as np

from kernel_tables.diagnosis.case import Case, Found
from kernel_tables.diagnosis.host_rules import CAUSE_SHARE
from kernel_tables.diagnosis.scope import NO_STEP, Scope

FEWEST_STEPS = 6
# The ten steps of small, context 512, lie within 10 % on an H200, whose clocks fall by 5 % in 80 ms of bf16 products.
OUTLIER, DRIFT = 1.25, 0.10


def unsteady_steps(case: Case) -> Found | None:
    """A step lasts from the start of its first kernel to that of the next step's, which tells the time of host and GPU
    alike where the host runs ahead; the last one lasts to the end. Idle time that other findings hold is left to them.
    """
    scope, busy_ns = case.scope, _busy_ns(case)
    time_ns = np.maximum(step_times_ns(scope) - _claimed_ns(case), 1)
    usual, half = float(np.median(time_ns)), len(time_ns) // 2
    before, after = float(np.median(time_ns[:half])), float(np.median(time_ns[-half:]))
    slow, drift = time_ns > OUTLIER * usual, after / before - 1
    longer_ns = np.maximum(time_ns - (usual if abs(drift) < DRIFT else min(before, after)), 0)
    gain_ns = int(longer_ns.sum()) * len(scope.devices)
    if not (slow.any() or abs(drift) >= DRIFT) or scope.share(gain_ns) < CAUSE_SHARE:
        return None
    longer_busy_ns = np.minimum(np.maximum(busy_ns - float(np.median(busy_ns)), 0), longer_ns)
    evidence = {
        "median_ms": usual / 1e6,
        "slow_steps_ms": {str(n): float(time_ns[n]) / 1e6 for n in np.flatnonzero(slow).tolist()},
        "drift_percent": round(100 * drift, 2),
        "longer_ms": float(longer_ns.sum()) / 1e6,
        "longer_while_gpu_runs_ms": float(longer_busy_ns.sum()) / 1e6,
    }
    said = (
        f"{int(slow.sum())} of {len(time_ns)} steps take more than {OUTLIER} times the median of {usual / 1e6:.3g} ms;"
        f" from the first to the second half of the steps they change by {100 * drift:+.1f} %"
    )
    weight = np.where(np.isin(scope.step, np.flatnonzero(longer_ns > 0)), case.time_by_activity, 0)
    return Found(gain_ns, said, evidence, weight)


def step_times_ns(scope: Scope) -> np.ndarray:
    """By step: how long it lasted; together they are the time from the first start to the last end."""
    return np.diff(np.append(_first_ns(scope), max(device.last_ns for device in scope.devices)))


def _first_ns(scope: Scope) -> np.ndarray:
    """By step: the start of its first activity."""
    inside = scope.step != NO_STEP
    first = np.full(len(scope.steps), np.iinfo(np.int64).max)
    np.minimum.at(first, scope.step[inside], scope.activities.start_ns[inside])
    return first


def _claimed_ns(case: Case) -> np.ndarray:
    """By step: the idle time in it that the findings hold to which it is left, the mean of the devices. What ended an
    idle time may be the first activity of the step after."""
    idle_ns = np.minimum(case.claimed_ns, case.idle_by_activity())
    rows = np.flatnonzero(idle_ns)
    step = np.searchsorted(_first_ns(case.scope), case.scope.activities.start_ns[rows]) - 1
    claimed_ns = np.bincount(np.maximum(step, 0), idle_ns[rows], len(case.scope.steps))
    return claimed_ns / len(case.scope.devices)


def _busy_ns(case: Case) -> np.ndarray:
    """By step: the time that its activities ran, summed; the clocks' part in a step's time shows here."""
    step = case.scope.step
    busy_ns = np.zeros(len(case.scope.steps), np.int64)
    np.add.at(busy_ns, step[step != NO_STEP], case.time_by_activity[step != NO_STEP])
    return busy_ns
