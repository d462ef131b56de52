"""The rule on steps that differ. It returns a RuleHit, or None."""

from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.arrays import blocks, sums_by_group
from kernel_tables.diagnosis.context import DiagnosisContext, RuleHit
from kernel_tables.diagnosis.host_rules import CAUSE_SHARE
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.units import duration

MIN_STEPS = 6
# The ten steps of small, context 512, lie within 10 % on an H200, whose clocks fall by 5 % in 80 ms of bf16 products.
OUTLIER, DRIFT = 1.25, 0.10
MORE_WORK = 1.05  # times the launches of other steps
EXPLAINING = 1 + (OUTLIER - 1) / 2  # times the launches of other steps: explains half of what an OUTLIER takes longer


def unsteady_steps(context: DiagnosisContext) -> RuleHit | None:
    """Steps that are slow, or that drift. The idle time that other findings claim does not count. With fewer than
    MIN_STEPS steps, or on the CPU, which other programs use, too, a slow step may be chance: it is reported only if it
    does more work."""
    scope = context.scope
    time_ns = np.maximum(step_times_ns(scope) - _claimed_ns(context), 1)  # by step, as are all arrays below
    median_ns, half = float(np.median(time_ns)), len(time_ns) // 2
    may_be_chance = len(time_ns) < MIN_STEPS or scope.trace.is_cpu_only
    is_slow = time_ns > OUTLIER * median_ns
    if may_be_chance and is_slow.any():
        is_slow &= _does_more(scope, is_slow)
    median_of_halves_ns = float(np.median(time_ns[:half])), float(np.median(time_ns[-half:]))
    drift = 0.0 if may_be_chance else median_of_halves_ns[1] / median_of_halves_ns[0] - 1
    usual_ns = median_ns if abs(drift) < DRIFT else min(median_of_halves_ns)
    is_counted = is_slow if may_be_chance else np.ones(len(time_ns), bool)
    longer_ns = np.where(is_counted, np.maximum(time_ns - usual_ns, 0), 0)
    gain_ns = int(longer_ns.sum()) * len(scope.devices)
    if not (is_slow.any() or abs(drift) >= DRIFT) or scope.share(gain_ns) < CAUSE_SHARE:
        return None
    busy_ns = _busy_ns(context)
    longer_busy_ns = np.minimum(np.maximum(busy_ns - float(np.median(busy_ns)), 0), longer_ns)
    evidence = {
        "median_ms": median_ns / 1e6,
        "slow_steps_ms": {str(step): float(time_ns[step]) / 1e6 for step in np.flatnonzero(is_slow).tolist()},
        "drift_percent": round(100 * drift, 2),
        "longer_ms": float(longer_ns.sum()) / 1e6,
        "longer_while_gpu_runs_ms": float(longer_busy_ns.sum()) / 1e6,
    }
    is_in_longer_step = np.isin(scope.step_by_activity, np.flatnonzero(longer_ns > 0))
    ns_by_activity = np.where(is_in_longer_step, context.time_by_activity, 0)
    return RuleHit(gain_ns, _sentence(scope, is_slow, median_ns, drift), evidence, ns_by_activity)


def _does_more(scope: Scope, is_slow: np.ndarray) -> np.ndarray:
    """By step: whether it does much more work than the steps that are not slow, which may be why it is slow."""
    launches, repeated = _launches(scope), _repeated_range(scope, is_slow)
    does_more = launches > EXPLAINING * np.median(launches[~is_slow])
    if repeated:
        does_more |= repeated.instances > np.median(repeated.instances[~is_slow])
    return does_more


def differ_in_work(scope: Scope) -> bool:
    """Whether a step launches notably more than the step with the fewest launches."""
    launches = _launches(scope)
    return bool(launches.max(initial=0) > MORE_WORK * launches.min(initial=launches.max(initial=0)))


def step_times_ns(scope: Scope) -> np.ndarray:
    """By step: the time from its first activity to that of the next step; on the CPU, from its range to the next. The
    last step lasts to the end of the span. Ranges would not do for a GPU, since the host may run ahead of it."""
    return np.diff(np.append(_start_ns(scope), max(device.last_ns for device in scope.devices)))


def _sentence(scope: Scope, is_slow: np.ndarray, median_ns: float, drift: float) -> str:
    parts = []
    if is_slow.any():
        parts.append(
            f"{int(is_slow.sum())} of {len(is_slow)} steps take{'s' if is_slow.sum() == 1 else ''} more than {OUTLIER}"
            f" times the median of {duration(median_ns)}: {_what_varies(scope, is_slow)}"
        )
    if abs(drift) >= DRIFT:
        parts.append(f"from the first to the second half, the time of a step changes by {100 * drift:+.1f} %")
    return "; ".join(parts)


def _what_varies(scope: Scope, is_slow: np.ndarray) -> str:
    """The work that slow steps do more often than the others, in words."""
    if repeated := _repeated_range(scope, is_slow):
        usual = np.median(repeated.instances[~is_slow])
        more = repeated.instances[is_slow & (repeated.instances > usual)]
        where = "there" if len(more) == is_slow.sum() else f"in {len(more)} of them"
        others = f"{usual:g} times" if usual else "not"
        return f"{repeated.name} runs {np.median(more):g} times {where}, and {others} in the others"
    launches = _launches(scope)
    more, usual = np.median(launches[is_slow]), np.median(launches[~is_slow])
    if more > MORE_WORK * usual:
        return f"they do more work: {more:,.0f} {scope.noun}, and the others {usual:,.0f}"
    if scope.compiled_in_words:
        return f"{scope.compiled_in_words} in the window"
    return f"they run as many {scope.noun} as the others, so it is the time of the same work that varies"


class _RepeatedRange(NamedTuple):
    name: str
    instances: np.ndarray  # by step


def _repeated_range(scope: Scope, is_slow: np.ndarray) -> _RepeatedRange | None:
    """Of the ranges directly inside steps that occur more often in slow steps than in others, the one whose additional
    instances take the most time; None if there is none."""
    ranges, paths = scope.trace.range_arrays, scope.trace.range_paths
    path_of_range = paths.of_node[: len(ranges)]
    inner = np.flatnonzero(paths.name[paths.parent[path_of_range]] == paths.code(scope.step_name))
    step = np.searchsorted(ranges.start_ns[scope.step_ranges], ranges.start_ns[inner], "right") - 1
    inner, step = inner[step >= 0], step[step >= 0]
    repeated, most_ns = None, 0.0
    for path in np.unique(path_of_range[inner]).tolist():
        has_path = path_of_range[inner] == path
        instances = np.bincount(step[has_path], minlength=len(is_slow))
        mean_ns = int((ranges.end_ns - ranges.start_ns)[inner[has_path]].sum()) / instances.sum()
        more = float(np.median(instances[is_slow]) - np.median(instances[~is_slow])) if not is_slow.all() else 0.0
        if more > 0 and more * mean_ns > most_ns:
            repeated, most_ns = _RepeatedRange(paths.names[paths.name[path]], instances), more * mean_ns
    return repeated


def _launches(scope: Scope) -> np.ndarray:
    """By step: the number of kernels that it launched."""
    step = scope.step_by_activity[scope.is_kernel]
    return np.bincount(step[step != NO_STEP], minlength=len(scope.step_ranges))


def _start_ns(scope: Scope) -> np.ndarray:
    """By step: the start of its first activity, or of its range on the CPU."""
    if scope.trace.is_cpu_only:
        return scope.trace.range_arrays.start_ns[scope.step_ranges]
    first = np.full(len(scope.step_ranges) + 1, np.iinfo(np.int64).max)  # the last entry is for activities of no step
    for block in blocks(len(scope.step_by_activity)):
        np.minimum.at(first, scope.step_by_activity[block], scope.activities.start_ns[block])
    return first[:-1]


def _claimed_ns(context: DiagnosisContext) -> np.ndarray:
    """By step: the idle time that other findings claim, the mean of the devices."""
    scope, idle_ns, step_start_ns = context.scope, context.idle_by_activity(), _start_ns(context.scope)
    np.minimum(idle_ns, context.claimed_ns, out=idle_ns)
    claimed_ns = np.zeros(len(scope.step_ranges), np.int64)
    for block in blocks(len(idle_ns)):
        # The first activity of a step ends idle time of the step before: searchsorted finds that one.
        step = np.maximum(np.searchsorted(step_start_ns, scope.activities.start_ns[block]) - 1, 0)
        claimed_ns += sums_by_group(step, idle_ns[block], len(claimed_ns))
    return claimed_ns / len(scope.devices)


def _busy_ns(context: DiagnosisContext) -> np.ndarray:
    """By step: the sum of the times of its activities. It is longer if the clocks are slower."""
    count = len(context.scope.step_ranges) + 1  # the last group is of activities of no step
    return sums_by_group(context.scope.step_by_activity, context.time_by_activity, count)[:-1]
