"""What differs between two captures, and by how much, a step of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.comparison.sides import LEVELS, PerStep, Side

if TYPE_CHECKING:
    import pandas as pd

APPEARED, GONE, COUNT, TIME, SAME, FACT = "appeared", "gone", "count", "time", "same", "fact"
TOLERANCE = 0.01  # two whole grids on two H200s agreed within 0.55 %
LEAST_SHARE = 0.001  # of the step, below which a change of time is none
SPREADS = 2  # standard errors of the mean over steps


@dataclass(frozen=True)
class Change:
    """One thing that differs: before and after, of a step; a fact has texts only."""

    level: str  # fact, phase, part, class or kernel
    name: str
    change: str  # fact, appeared, gone, count, time; same, where all are asked for
    before: str  # of a fact
    after: str
    launches_before: float | None = None
    launches_after: float | None = None
    ms_before: float | None = None
    ms_after: float | None = None
    ms_more: float | None = None
    ratio: float | None = None


def changes(one: Side, other: Side, tolerance: float = TOLERANCE, everything: bool = False) -> list[Change]:
    """What differs: facts first, then phases, parts, classes and kernels, each by how much its time changed.

    A thing has changed when its launches of a step did, or its time by more than TOLERANCE of itself, LEAST_SHARE of
    the step and SPREADS standard errors between steps. With EVERYTHING, what is the same is listed too.
    """
    found = list(_facts(one, other))
    least_ns = LEAST_SHARE * max(one.time_ns.mean(), other.time_ns.mean())
    for level in LEVELS:
        names = {**one.rows[level], **other.rows[level]}
        of_level = [_change(level, name, one, other, tolerance, least_ns) for name in names]
        of_level.sort(key=lambda change: (-abs(change.ms_more), change.name))
        found += [change for change in of_level if everything or change.change != SAME]
    return found


def as_table(found: list[Change]) -> pd.DataFrame:
    """One row per change."""
    import pandas as pd

    table = pd.DataFrame([asdict(change) for change in found], columns=list(Change.__dataclass_fields__))
    numbers = [name for name in table.columns if name.startswith(("launches", "ms", "ratio"))]
    return table.astype(dict.fromkeys(numbers, "float64"))


def _facts(one: Side, other: Side) -> Iterator[Change]:
    for name in dict.fromkeys([*one.facts, *other.facts]):
        before, after = (side.facts.get(name, "not told") for side in (one, other))
        if before != after:
            yield Change(FACT, name, FACT, before, after)


def _change(level: str, name: str, one: Side, other: Side, tolerance: float, least_ns: float) -> Change:
    before, after = (side.rows[level].get(name, _nothing(side.steps)) for side in (one, other))
    launches = before.launches.mean(), after.launches.mean()
    ms = before.time_ns.mean() / 1e6, after.time_ns.mean() / 1e6
    kind = _kind(before, after, tolerance, least_ns)
    ratio = ms[1] / ms[0] if ms[0] else None
    return Change(level, name, kind, "", "", *launches, *ms, ms[1] - ms[0], ratio)


def _kind(before: PerStep, after: PerStep, tolerance: float, least_ns: float) -> str:
    if not before.launches.any() or not after.launches.any():
        return APPEARED if after.launches.any() else GONE
    if before.launches.mean() != after.launches.mean():
        return COUNT
    change_ns = abs(after.time_ns.mean() - before.time_ns.mean())
    largest_ns = max(before.time_ns.mean(), after.time_ns.mean())
    least = max(tolerance * largest_ns, least_ns, SPREADS * np.hypot(_error(before.time_ns), _error(after.time_ns)))
    return TIME if change_ns > least else SAME


def _error(time_ns: np.ndarray) -> float:
    """The standard error of the mean; 0 for one step, of which none is known."""
    return float(time_ns.std(ddof=1) / len(time_ns) ** 0.5) if len(time_ns) > 1 else 0.0


def _nothing(steps: int) -> PerStep:
    return PerStep(np.zeros(steps, np.int64), np.zeros(steps, np.int64))
