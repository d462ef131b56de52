"""The rule on steps that differ. It returns a RuleHit, or None."""

import numpy as np

from kernel_tables.attribution.arrays import blocks, sums_by_group
from kernel_tables.diagnosis.context import DiagnosisContext, RuleHit
from kernel_tables.diagnosis.host_rules import CAUSE_SHARE
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.units import duration

FEWEST_STEPS = 6
# The ten steps of small, context 512, lie within 10 % on an H200, whose clocks fall by 5 % in 80 ms of bf16 products.
OUTLIER, DRIFT = 1.25, 0.10
MORE_WORK = 1.05  # times the launches of other steps
EXPLAINS = 1 + (OUTLIER - 1) / 2  # with this ratio, launches account for half of what makes a step slow


def unsteady_steps(context: DiagnosisContext) -> RuleHit | None:
    """Idle time of other findings is left to them. With fewer than FEWEST_STEPS steps, or on the CPU, which other
    programs use, slow steps are reported only where more work accounts for that: others may be chance."""
    scope, busy_ns = context.scope, _busy_ns(context)
    time_ns = np.maximum(step_times_ns(scope) - _claimed_ns(context), 1)
    usual, half = float(np.median(time_ns)), len(time_ns) // 2
    may_be_chance = len(time_ns) < FEWEST_STEPS or scope.trace.is_cpu_only
    before, after = float(np.median(time_ns[:half])), float(np.median(time_ns[-half:]))
    slow, drift = time_ns > OUTLIER * usual, 0.0 if may_be_chance else after / before - 1
    if may_be_chance and slow.any():
        slow &= _do_more(scope, slow)
    longer_ns = np.maximum(time_ns - (usual if abs(drift) < DRIFT else min(before, after)), 0)
    longer_ns = np.where(slow, longer_ns, 0) if may_be_chance else longer_ns
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
    weight = np.where(np.isin(scope.step, np.flatnonzero(longer_ns > 0)), context.time_by_activity, 0)
    return RuleHit(gain_ns, _sentence(scope, slow, usual, drift), evidence, weight)


def _do_more(scope: Scope, slow: np.ndarray) -> np.ndarray:
    """By step: whether it does more work than those that are not `slow`, so much that this may be why it is."""
    launches, (name, times) = _launches(scope), _instances_by_step(scope, slow)
    does_more = launches > EXPLAINS * np.median(launches[~slow])
    return does_more | (times > np.median(times[~slow])) if name else does_more


def differ_in_work(scope: Scope) -> bool:
    """Whether a step launches notably more than the step with the fewest launches."""
    launches = _launches(scope)
    return bool(launches.max(initial=0) > MORE_WORK * launches.min(initial=launches.max(initial=0)))


def step_times_ns(scope: Scope) -> np.ndarray:
    """By step: the time from its first activity (on the CPU, from its range) to that of the next step, which
    holds even if the host runs ahead. The last step lasts to the end of the span."""
    return np.diff(np.append(_first_ns(scope), max(device.last_ns for device in scope.devices)))


def _sentence(scope: Scope, slow: np.ndarray, usual_ns: float, drift: float) -> str:
    parts = []
    if slow.any():
        number = f"{int(slow.sum())} of {len(slow)} steps"
        parts = [
            f"{number} take{'s' if slow.sum() == 1 else ''} more than {OUTLIER} times the median of"
            f" {duration(usual_ns)}: {_what_varies(scope, slow)}"
        ]
    if abs(drift) >= DRIFT:
        parts.append(f"from the first to the second half, the time of a step changes by {100 * drift:+.1f} %")
    return "; ".join(parts)


def _what_varies(scope: Scope, slow: np.ndarray) -> str:
    """The work that slow steps do more often than the others, in words."""
    name, times = _instances_by_step(scope, slow)
    if name:
        usual = np.median(times[~slow])
        more = times[slow & (times > usual)]
        where = "there" if len(more) == slow.sum() else f"in {len(more)} of them"
        others = f"{usual:g} times" if usual else "not"
        return f"{name} runs {np.median(more):g} times {where}, and {others} in the others"
    launches = _launches(scope)
    more, usual = np.median(launches[slow]), np.median(launches[~slow])
    if more > MORE_WORK * usual:
        return f"they do more work: {more:,.0f} {scope.noun}, and the others {usual:,.0f}"
    if scope.compiled_in_words:
        return f"{scope.compiled_in_words} in the window"
    return f"they run as many {scope.noun} as the others, so it is the time of the same work that varies"


def _instances_by_step(scope: Scope, slow: np.ndarray) -> tuple[str, np.ndarray]:
    """(the outermost range within the steps that occurs more often in `slow` ones, its instances by step); ("", none)
    where each range occurs equally often."""
    ranges, paths = scope.trace.range_arrays, scope.trace.range_paths
    code = paths.code(scope.step_name)
    path = paths.of_node[: len(ranges)]
    phases_of_name = np.flatnonzero(paths.name[paths.parent[path]] == code)
    starts = ranges.start_ns[scope.steps]
    step = np.searchsorted(starts, ranges.start_ns[phases_of_name], "right") - 1
    phases_of_name, step = phases_of_name[step >= 0], step[step >= 0]
    best, most = ("", np.empty(0)), 0.0
    for number in np.unique(path[phases_of_name]).tolist():
        of_path = path[phases_of_name] == number
        times = np.bincount(step[of_path], minlength=len(slow))
        lasted_ns = int((ranges.end_ns - ranges.start_ns)[phases_of_name[of_path]].sum())
        more = float(np.median(times[slow]) - np.median(times[~slow])) if not slow.all() else 0.0
        if more > 0 and more * lasted_ns / times.sum() > most:
            most, best = more * lasted_ns / times.sum(), (paths.names[paths.name[number]], times)
    return best


def _launches(scope: Scope) -> np.ndarray:
    """By step: the number of kernels that it launched."""
    return np.bincount(scope.step[(scope.step != NO_STEP) & scope.is_kernel], minlength=len(scope.steps))


def _first_ns(scope: Scope) -> np.ndarray:
    """By step: its start."""
    if scope.trace.is_cpu_only:
        return scope.trace.range_arrays.start_ns[scope.steps]
    first = np.full(len(scope.steps) + 1, np.iinfo(np.int64).max)  # the last entry is for activities of no step
    for block in blocks(len(scope.step)):
        np.minimum.at(first, scope.step[block], scope.activities.start_ns[block])
    return first[:-1]


def _claimed_ns(context: DiagnosisContext) -> np.ndarray:
    """By step: its idle time that other findings claim, the mean of the devices. An idle time may be ended by the first
    activity of the next step."""
    scope, idle_ns, first_ns = context.scope, context.idle_by_activity(), _first_ns(context.scope)
    np.minimum(idle_ns, context.claimed_ns, out=idle_ns)
    starts = scope.activities.start_ns
    of_steps = np.zeros(len(scope.steps), np.int64)
    for block in blocks(len(starts)):
        step = np.maximum(np.searchsorted(first_ns, starts[block]) - 1, 0)
        of_steps += sums_by_group(step, idle_ns[block], len(of_steps))
    return of_steps / len(scope.devices)


def _busy_ns(context: DiagnosisContext) -> np.ndarray:
    """By step: the time that its activities ran, summed; the clocks' part in a step's time shows here."""
    count = len(context.scope.steps)  # the last group is of activities of no step
    return sums_by_group(context.scope.step, context.time_by_activity, count + 1)[:-1]
