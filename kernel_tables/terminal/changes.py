"""What `diff` prints where standard output is a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from kernel_tables.comparison import FACT, SAME, Change
from kernel_tables.kernel_names.short import short_names
from kernel_tables.terminal.columns import TextColumn, aligned
from kernel_tables.units import duration

LEAST_NAME, LEAST_FACT = 20, 10
KERNEL = "kernel"
OF_A_STEP = "times and launches are those of one step"


def change_lines(found: Sequence[Change], tolerance: float, width: int) -> str:
    """The changes, a row each; of times the mean of a step."""
    same = all(one.change == SAME for one in found)
    nothing = f"nothing differs: no time by more than {100 * tolerance:g} % of itself\n" if same else ""
    if not found:
        return nothing
    short = short_names([one.name for one in found if one.level == KERNEL])
    before = [one.before if one.change == FACT else _time(one.ms_before) for one in found]
    after = [one.after if one.change == FACT else _time(one.ms_after) for one in found]
    columns = [
        TextColumn("level", [one.level for one in found], right=False),
        TextColumn("name", [short.get(one.name, one.name) for one in found], right=False, least=LEAST_NAME),
        TextColumn("change", [one.change for one in found], right=False),
        TextColumn("before", before, least=LEAST_FACT),
        TextColumn("after", after, least=LEAST_FACT),
        TextColumn("more", [_time(one.ms_more) for one in found], rank=3),
        TextColumn("ratio", ["" if one.ratio is None else f"× {one.ratio:.3g}" for one in found], rank=2),
        TextColumn("launches", [_launches(one) for one in found], rank=1),
    ]
    return aligned(columns, width) + nothing + f"{OF_A_STEP}\n"


def _time(ms: float | None) -> str:
    return "" if ms is None else duration(1e6 * ms)


def _launches(one: Change) -> str:
    if one.launches_before is None or one.launches_after is None:
        return ""
    before, after = f"{one.launches_before:,.4g}", f"{one.launches_after:,.4g}"
    return before if before == after else f"{before} → {after}"
