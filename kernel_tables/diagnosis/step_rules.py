"""What a rule finds in how steps differ. It gives what it found, or None."""

from __future__ import annotations

import numpy as np

from kernel_tables.diagnosis.case import Case, Found
from kernel_tables.diagnosis.scope import NO_STEP, Scope

FEWEST_STEPS = 6
OUTLIER, DRIFT = 1.25, 0.05  # the ten steps of small, context 512, on an H200 lie within 10 %, their halves within 2 %


def unsteady_steps(case: Case) -> Found | None:
    """A step lasts from the start of its first kernel to that of the next step's, which tells the time of host and GPU
    alike where the host runs ahead; the last one lasts to the end."""
    scope, time_ns, busy_ns = case.scope, step_times_ns(case.scope), _busy_ns(case)
    usual, half = float(np.median(time_ns)), len(time_ns) // 2
    slow = time_ns > OUTLIER * usual
    drift = float(np.median(time_ns[-half:]) / np.median(time_ns[:half])) - 1
    if not slow.any() and abs(drift) < DRIFT:
        return None
    longer_ns = np.maximum(time_ns - usual, 0)
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
    return Found(int(longer_ns.sum()) * len(scope.devices), said, evidence, weight)


def step_times_ns(scope: Scope) -> np.ndarray:
    """By step: how long it lasted; together they are the time from the first start to the last end."""
    inside = scope.step != NO_STEP
    first = np.full(len(scope.steps), np.iinfo(np.int64).max)
    np.minimum.at(first, scope.step[inside], scope.activities.start_ns[inside])
    return np.diff(np.append(first, max(device.last_ns for device in scope.devices)))


def _busy_ns(case: Case) -> np.ndarray:
    """By step: the time that its activities ran, summed; the clocks' part in a step's time shows here."""
    step = case.scope.step
    busy_ns = np.zeros(len(case.scope.steps), np.int64)
    np.add.at(busy_ns, step[step != NO_STEP], case.time_by_activity[step != NO_STEP])
    return busy_ns
