"""What `diff` prints where standard output is a terminal."""

import pandas as pd

from kernel_tables.comparison import FACT, SAME
from kernel_tables.kernel_names.short import short_names
from kernel_tables.terminal.columns import TextColumn, aligned
from kernel_tables.units import duration

LEAST_NAME, LEAST_FACT = 20, 10
KERNEL = "kernel"
UNITS_NOTE = "times and launches are per step"


def change_lines(changes: pd.DataFrame, tolerance: float, width: int) -> str:
    """One row per change; times are means per step."""
    nothing = f"nothing differs, no time by more than {100 * tolerance:g} %\n"
    nothing = nothing if (changes["change"] == SAME).all() else ""
    if changes.empty:
        return nothing
    short = short_names(changes.loc[changes["level"] == KERNEL, "name"])
    is_fact = changes["change"] == FACT
    before, after = (changes[side].where(is_fact, changes[f"ms_{side}"].map(_time)) for side in ("before", "after"))
    launches = zip(changes["launches_before"], changes["launches_after"], strict=True)
    columns = [
        TextColumn("level", list(changes["level"]), right=False),
        TextColumn("name", [short.get(name, name) for name in changes["name"]], right=False, least=LEAST_NAME),
        TextColumn("change", list(changes["change"]), right=False),
        TextColumn("before", list(before), least=LEAST_FACT),
        TextColumn("after", list(after), least=LEAST_FACT),
        TextColumn("more", [_time(ms) for ms in changes["ms_more"]], rank=3),
        TextColumn("ratio", ["" if ratio != ratio else f"× {ratio:.3g}" for ratio in changes["ratio"]], rank=2),
        TextColumn("launches", ["" if pair[0] != pair[0] else _launches(*pair) for pair in launches], rank=1),
    ]
    return aligned(columns, width) + nothing + f"{UNITS_NOTE}\n"


def _time(ms: float) -> str:
    return "" if ms != ms else duration(1e6 * ms)


def _launches(before: float, after: float) -> str:
    texts = f"{before:,.4g}", f"{after:,.4g}"
    return " → ".join(dict.fromkeys(texts))
