"""Two captures compared: the facts about them, and the launches of a step of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution.arrays import factorize, sums_by_group
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.steps import phases_and_parts
from kernel_tables.diagnosis.scope import NO_STEP, Scope

if TYPE_CHECKING:
    import pandas as pd

LEVELS = ("phase", "part", "class", "kernel")
FACTS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "schema", "CAPTURE_BACKEND": "backend"}
APPEARED, GONE, COUNT, TIME, SAME, FACT = "appeared", "gone", "count", "time", "same", "fact"
TOLERANCE = 0.01  # two complete grids on two H200s agreed within 0.55 %
MIN_SHARE = 0.001  # of the step; smaller changes of time do not count
STANDARD_ERRORS = 2  # of the mean over steps; smaller changes of time do not count


@dataclass(frozen=True)
class PerStep:
    """Launches and nanoseconds of GPU time of one thing, by step."""

    launches: np.ndarray
    time_ns: np.ndarray


@dataclass(frozen=True)
class Side:
    """One of the captures: facts by name, its number of steps, and launches and times by level and name.

    A capture without steps counts as one step.
    """

    facts: dict[str, str]
    steps: int
    rows: dict[str, dict[str, PerStep]]
    time_ns: np.ndarray  # of all activities, by step


@dataclass(frozen=True)
class Change:
    """One thing that differs, before and after, in a step. A fact has only texts."""

    level: str  # fact, phase, part, class or kernel
    name: str
    change: str  # fact, appeared, gone, count or time; same, if everything is listed
    before: str  # of a fact
    after: str
    launches_before: float | None = None
    launches_after: float | None = None
    ms_before: float | None = None
    ms_after: float | None = None
    ms_more: float | None = None
    ratio: float | None = None


def side_of(trace: CaptureArrays, step_name: str = "step") -> Side:
    """A trace as one side of a comparison. Raises ImpossibleCapture if the capture is impossible."""
    scope, activities = Scope(trace, step_name), trace.gpu_activities
    has_steps = bool(len(scope.steps))
    rows = np.flatnonzero(scope.step != NO_STEP) if has_steps else np.arange(len(activities))
    step = scope.step[rows] if has_steps else np.zeros(len(rows), np.int64)
    phases, parts = phases_and_parts(trace.range_paths.tuples, step_name)
    path, name = trace.activity_path[rows], activities.name[rows]
    labels = ((path, phases), (path, parts), (name, trace.activity_classes), (name, activities.names))
    duration_ns = activities.duration_ns[rows]
    by_level = {
        level: _per_step(code, names, step, duration_ns, scope.count)
        for level, (code, names) in zip(LEVELS, labels, strict=True)
    }
    facts = {name: trace.metadata[key] for key, name in FACTS.items() if key in trace.metadata}
    facts |= {"GPUs": "; ".join(trace.capture.gpus()) or "unknown", "steps": str(len(scope.steps))}
    trace.require_possible()
    return Side(facts, scope.count, by_level, sums_by_group(step, duration_ns, scope.count))


def _per_step(
    code: np.ndarray, names: list[str], step: np.ndarray, duration_ns: np.ndarray, steps: int
) -> dict[str, PerStep]:
    """Launches and time by name, where codes with the same name count together."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    used, index = factorize(code)
    number = np.array([numbers[names[used_code]] for used_code in used.tolist()], np.int64)[index]
    key, size = number * steps + step, len(numbers) * steps
    launches = np.bincount(key, minlength=size).reshape(-1, steps)
    time_ns = sums_by_group(key, duration_ns, size).reshape(-1, steps)
    return {name: PerStep(launches[row], time_ns[row]) for name, row in numbers.items() if launches[row].any()}


def changes(before: Side, after: Side, tolerance: float = TOLERANCE, everything: bool = False) -> list[Change]:
    """What differs: facts first, then phases, parts, classes and kernels, each by how much its time changed.

    A thing has changed if its launches in a step did, or its time by more than `tolerance` of itself, MIN_SHARE of the
    step and STANDARD_ERRORS of the mean over steps. With `everything`, unchanged things are listed, too.
    """
    rows = list(_changed_facts(before, after))
    min_change_ns = MIN_SHARE * max(before.time_ns.mean(), after.time_ns.mean())
    for level in LEVELS:
        names = {**before.rows[level], **after.rows[level]}
        of_level = [_change(level, name, before, after, tolerance, min_change_ns) for name in names]
        of_level.sort(key=lambda change: (-abs(change.ms_more), change.name))
        rows += [change for change in of_level if everything or change.change != SAME]
    return rows


def as_table(rows: list[Change]) -> pd.DataFrame:
    """One row per change."""
    import pandas as pd

    table = pd.DataFrame([asdict(change) for change in rows], columns=list(Change.__dataclass_fields__))
    numbers = [name for name in table.columns if name.startswith(("launches", "ms", "ratio"))]
    return table.astype(dict.fromkeys(numbers, "float64"))


def _changed_facts(before: Side, after: Side) -> Iterator[Change]:
    for name in dict.fromkeys([*before.facts, *after.facts]):
        values = [side.facts.get(name, "unknown") for side in (before, after)]
        if values[0] != values[1]:
            yield Change(FACT, name, FACT, *values)


def _change(level: str, name: str, before: Side, after: Side, tolerance: float, min_change_ns: float) -> Change:
    old, new = (side.rows[level].get(name, PerStep(*np.zeros((2, side.steps), np.int64))) for side in (before, after))
    launches = old.launches.mean(), new.launches.mean()
    ms = old.time_ns.mean() / 1e6, new.time_ns.mean() / 1e6
    kind = _kind(old, new, tolerance, min_change_ns)
    return Change(level, name, kind, "", "", *launches, *ms, ms[1] - ms[0], ms[1] / ms[0] if ms[0] else None)


def _kind(before: PerStep, after: PerStep, tolerance: float, min_change_ns: float) -> str:
    if not before.launches.any() or not after.launches.any():
        return APPEARED if after.launches.any() else GONE
    if before.launches.mean() != after.launches.mean():
        return COUNT
    means_ns = before.time_ns.mean(), after.time_ns.mean()
    error_ns = np.hypot(_standard_error(before.time_ns), _standard_error(after.time_ns))
    threshold_ns = max(tolerance * max(means_ns), min_change_ns, STANDARD_ERRORS * error_ns)
    return TIME if abs(means_ns[1] - means_ns[0]) > threshold_ns else SAME


def _standard_error(time_ns: np.ndarray) -> float:
    """The standard error of the mean; 0 for a single step, whose error is unknown."""
    return float(time_ns.std(ddof=1) / len(time_ns) ** 0.5) if len(time_ns) > 1 else 0.0
