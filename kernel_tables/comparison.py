"""Two captures compared: the facts about them, and the launches of their steps."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables.attribution import arrays, capture_arrays
from kernel_tables.attribution.steps import phases_and_parts
from kernel_tables.columns import column_names
from kernel_tables.diagnosis.scope import Scope

LEVELS = ("phase", "part", "class", "kernel")
FACTS = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "schema", "CAPTURE_BACKEND": "backend"}
APPEARED, GONE, COUNT, TIME, SAME, FACT = "appeared", "gone", "count", "time", "same", "fact"  # values of `change`
TOLERANCE = 0.01  # two complete grids on two H200s agreed within 0.55 %
MIN_SHARE = 0.001  # of the step; smaller changes of time do not count
STANDARD_ERRORS = 2  # of the difference of the means over steps; smaller changes of time do not count


@dataclass(frozen=True)
class Side:
    """One of two captures that are compared."""

    facts: dict[str, str]  # by name
    steps: int  # their number; a capture without steps counts as one step
    launches: pd.DataFrame  # columns: those of LEVELS, step, launches, total_ns


def side_of(trace: capture_arrays.CaptureArrays, step_name: str = "step") -> Side:
    """A trace as one side of a comparison. Raises ImpossibleCapture if the capture is impossible."""
    scope, activities = Scope(trace, step_name), trace.gpu_activities
    rows = np.flatnonzero(scope.is_in_scope)  # the activities of measured steps; without steps, all
    step_of_rows = np.maximum(scope.step_by_activity[rows], 0)  # without steps, all of the capture is step 0
    # One key, and one row of the table, per combination of path, name and step.
    key_shape = (len(trace.range_paths), max(len(activities.names), 1), scope.step_count)
    indices = (trace.activity_path[rows], activities.name[rows], step_of_rows)
    keys, key_of_row = arrays.factorize(np.ravel_multi_index(indices, key_shape))
    path, name, step = np.unravel_index(keys, key_shape)
    phases, parts = phases_and_parts(trace.range_paths.tuples, step_name)
    launches = pd.DataFrame(
        {
            "phase": np.array(phases, object)[path],
            "part": np.array(parts, object)[path],
            "class": np.array(trace.activity_classes, object)[name],
            "kernel": np.array(activities.names, object)[name],
            "step": step,
            "launches": np.bincount(key_of_row, minlength=len(keys)),
            "total_ns": arrays.sums_by_group(key_of_row, activities.duration_ns[rows], len(keys)),
        }
    )
    facts = {name: trace.metadata[key] for key, name in FACTS.items() if key in trace.metadata}
    facts |= {"GPUs": "; ".join(trace.capture.gpus()) or "unknown", "steps": str(len(scope.step_ranges))}
    trace.require_possible()  # last: called before Scope, it would read the tables without their details
    return Side(facts, scope.step_count, launches)


def changes(before: Side, after: Side, tolerance: float = TOLERANCE, everything: bool = False) -> pd.DataFrame:
    """What differs, with the columns of `diff`: facts first, then phases, parts, classes and kernels. Each of these is
    sorted by how much its time changed, the largest change first.

    Launches per step have changed if they differ at all. A time has changed if the difference exceeds all three: the
    share `tolerance` of the longer time, the share MIN_SHARE of the longer step, and STANDARD_ERRORS times the standard
    error of the difference. With `everything`, names that are alike are included, but facts that are alike are not.
    """
    facts = pd.DataFrame({"before": before.facts, "after": after.facts}, dtype=object).fillna("unknown")
    facts = facts[facts["before"] != facts["after"]].rename_axis("name").reset_index()
    min_change_ms = MIN_SHARE * max(side.launches["total_ns"].sum() / side.steps / 1e6 for side in (before, after))
    tables = [_changes_of(level, before, after, tolerance, min_change_ms) for level in LEVELS]
    table = pd.concat([facts.assign(level=FACT, change=FACT), *tables], ignore_index=True)
    table = table if everything else table[table["change"] != SAME]
    return table[column_names("diff")].reset_index(drop=True)


def _changes_of(level: str, before: Side, after: Side, tolerance: float, min_change_ms: float) -> pd.DataFrame:
    """Every name of a level on either side, the largest change of time first."""
    sides = _means(before, level).add_suffix("_before"), _means(after, level).add_suffix("_after")
    table = pd.concat(sides, axis=1).fillna(0.0).rename_axis("name").reset_index()
    old_ms, new_ms = table["ms_before"], table["ms_after"]
    more_ms = new_ms - old_ms
    error_ms = STANDARD_ERRORS * np.hypot(table["error_before"], table["error_after"])
    tolerated_ms = np.maximum(tolerance * np.maximum(old_ms, new_ms), np.maximum(error_ms, min_change_ms))
    old, new = table["launches_before"], table["launches_after"]
    # The first that is true is the change of a name.
    is_change = {APPEARED: old == 0, GONE: new == 0, COUNT: old != new, TIME: more_ms.abs() > tolerated_ms}
    table = table.assign(
        level=level, change=np.select(list(is_change.values()), list(is_change), SAME), before="", after="",
        ms_more=more_ms, ratio=new_ms / old_ms.where(old_ms > 0), change_ms=more_ms.abs(),
    )  # fmt: skip
    return table.sort_values(["change_ms", "name"], ascending=[False, True])


def _means(side: Side, level: str) -> pd.DataFrame:
    """By name of a level, the means over the steps of `launches` and `ms`; `error` is the standard error of `ms`, 0 for
    a single step."""

    def by_step(column: str) -> pd.DataFrame:
        """The sums of the column by name, with a column for each step."""
        sums = side.launches.groupby([level, "step"])[column].sum().unstack(fill_value=0)
        return sums.reindex(columns=range(side.steps), fill_value=0)

    launches, ns = by_step("launches"), by_step("total_ns")
    error_ns = ns.std(axis=1) / side.steps**0.5 if side.steps > 1 else 0.0
    return pd.DataFrame({"launches": launches.mean(axis=1), "ms": ns.mean(axis=1) / 1e6, "error": error_ns / 1e6})
