"""Two captures compared: the facts about them, and the launches of their steps."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from kernel_tables.profile import Profile
from kernel_tables.steps import Scope, phases_and_parts

COLUMNS = [
    "level", "name", "change", "before", "after", "launches_before", "launches_after", "ms_before", "ms_after",
    "ms_more", "ratio",
]  # fmt: skip
LEVELS = ("phase", "part", "class", "kernel")
SAME, FACT = "same", "fact"  # values of `change`, beside appeared, gone, count and time
TOLERANCE = 0.01  # two complete grids on two H200s agreed within 0.55 %
MIN_SHARE = 0.001  # of the step; smaller changes of time do not count
STANDARD_ERRORS = 2  # of the difference of the means over steps; smaller changes of time do not count


@dataclass(frozen=True)
class Side:
    facts: dict[str, str]  # by name
    steps: int  # their number; a capture without steps counts as one step
    launches: pd.DataFrame  # columns: those of LEVELS, step, launches, total_ns

    def means(self, level: str) -> pd.DataFrame:
        """By name of a level, the means over steps of `launches` and `ms`, and its standard error (0 for one step)."""
        launches, ns = (
            self.launches.groupby([level, "step"])[column].sum().unstack(fill_value=0)
            .reindex(columns=range(self.steps), fill_value=0)
            for column in ("launches", "total_ns")
        )  # fmt: skip
        error_ns = ns.std(axis=1) / self.steps**0.5 if self.steps > 1 else 0.0
        return pd.DataFrame({"launches": launches.mean(axis=1), "ms": ns.mean(axis=1) / 1e6, "error": error_ns / 1e6})


def side_of(profile: Profile, step_name: str = "step") -> Side:
    """A capture as one side of a comparison. Raises ImpossibleCapture if its ranges are impossible."""
    scope, activities = Scope(profile, step_name), profile.capture.activities
    rows = np.flatnonzero(scope.is_in_scope)  # the activities of measured steps; without steps, all
    phases, parts = phases_and_parts(profile.paths, step_name)
    path, name = profile.attribution.path[rows], activities.name[rows]
    launches = {
        "phase": np.array(phases, object)[path],
        "part": np.array(parts, object)[path],
        "class": np.array(profile.activity_classes, object)[name],
        "kernel": np.array(activities.names, object)[name],
        "step": np.maximum(scope.step_by_activity[rows], 0),  # without steps, all of the capture is step 0
        "launches": 1,
        "total_ns": scope.duration_ns[rows],
    }
    names = {"EXPORT_PRODUCT_VERSION": "nsys", "EXPORT_SCHEMA_VERSION": "schema", "CAPTURE_BACKEND": "backend"}
    facts = {name: profile.metadata[key] for key, name in names.items() if key in profile.metadata}
    facts |= {"GPUs": "; ".join(profile.capture.source.gpus()) or "unknown", "steps": str(len(scope.step_ranges))}
    return Side(facts, scope.step_count, pd.DataFrame(launches))


def changes(before: Side, after: Side, tolerance: float = TOLERANCE, everything: bool = False) -> pd.DataFrame:
    """What differs, with COLUMNS: facts first, then phases, parts, classes and kernels. Each of these is
    sorted by how much its time changed, the largest change first.

    Launches per step have changed if they differ at all. A time has changed if the difference exceeds all three: the
    share `tolerance` of the longer time, the share MIN_SHARE of the longer step, and STANDARD_ERRORS times the standard
    error of the difference. With `everything`, names that are alike are included, but facts that are alike are not."""
    facts = pd.DataFrame({"before": before.facts, "after": after.facts}, dtype=object).fillna("unknown")
    facts = facts[facts["before"] != facts["after"]].rename_axis("name").reset_index()
    tables = [facts.assign(level=FACT, change=FACT)]
    least_ms = MIN_SHARE * max(side.launches["total_ns"].sum() / side.steps / 1e6 for side in (before, after))
    for level in LEVELS:
        means = before.means(level).add_suffix("_before"), after.means(level).add_suffix("_after")
        table = pd.concat(means, axis=1).fillna(0.0).rename_axis("name").reset_index()
        old_ms, new_ms = table["ms_before"], table["ms_after"]
        error_ms = STANDARD_ERRORS * np.hypot(table["error_before"], table["error_after"])
        tolerated_ms = np.maximum(tolerance * np.maximum(old_ms, new_ms), np.maximum(error_ms, least_ms))
        old, new, change_ms = table["launches_before"], table["launches_after"], (new_ms - old_ms).abs()
        # The first that is true is the change of a name.
        is_change = {"appeared": old == 0, "gone": new == 0, "count": old != new, "time": change_ms > tolerated_ms}
        table = table.assign(
            level=level, change=np.select(list(is_change.values()), list(is_change), SAME), before="", after="",
            ms_more=new_ms - old_ms, ratio=new_ms / old_ms.where(old_ms > 0), change_ms=change_ms,
        )  # fmt: skip
        tables.append(table.sort_values(["change_ms", "name"], ascending=[False, True]))
    table = pd.concat(tables, ignore_index=True)
    table = table if everything else table[table["change"] != SAME]
    return table[COLUMNS].reset_index(drop=True)
