"""What `diff` prints where standard output is a terminal."""

from collections.abc import Sequence

from kernel_tables.comparison import FACT, SAME, Change
from kernel_tables.kernel_names.short import short_names
from kernel_tables.terminal.columns import TextColumn, aligned
from kernel_tables.units import duration

LEAST_NAME, LEAST_FACT = 20, 10
KERNEL = "kernel"
UNITS_NOTE = "times and launches are per step"


def change_lines(changes: Sequence[Change], tolerance: float, width: int) -> str:
    """One row per change; times are means per step."""
    same = all(change.change == SAME for change in changes)
    nothing = f"nothing differs, no time by more than {100 * tolerance:g} %\n" if same else ""
    if not changes:
        return nothing
    short = short_names([change.name for change in changes if change.level == KERNEL])
    before = [change.before if change.change == FACT else _time(change.ms_before) for change in changes]
    after = [change.after if change.change == FACT else _time(change.ms_after) for change in changes]
    columns = [
        TextColumn("level", [change.level for change in changes], right=False),
        TextColumn("name", [short.get(change.name, change.name) for change in changes], right=False, least=LEAST_NAME),
        TextColumn("change", [change.change for change in changes], right=False),
        TextColumn("before", before, least=LEAST_FACT),
        TextColumn("after", after, least=LEAST_FACT),
        TextColumn("more", [_time(change.ms_more) for change in changes], rank=3),
        TextColumn("ratio", ["" if change.ratio is None else f"× {change.ratio:.3g}" for change in changes], rank=2),
        TextColumn("launches", [_launches(change) for change in changes], rank=1),
    ]
    return aligned(columns, width) + nothing + f"{UNITS_NOTE}\n"


def _time(ms: float | None) -> str:
    return "" if ms is None else duration(1e6 * ms)


def _launches(change: Change) -> str:
    if change.launches_before is None or change.launches_after is None:
        return ""
    before, after = f"{change.launches_before:,.4g}", f"{change.launches_after:,.4g}"
    return before if before == after else f"{before} → {after}"
