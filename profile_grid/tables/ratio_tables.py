"""Tables of documents on one dimension: times at its default, and times and speed-ups at its other values."""

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, known, ratio, significant, with_spread
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODE, MODEL, Dimension, keys_without
from profile_grid.tables.cells import lines_table, parts_table
from profile_grid.tables.evidence import UNTOLD
from profile_grid.tables.model_parts import if_parts_differ
from profile_grid.tables.names import FORWARD, MAIN_PHASES, WHOLE_STEP
from profile_grid.tables.pivoting import pivoted, sorted_values, split

LEADING_KEYS = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)


def steps_table(times: pd.DataFrame, dimension: Dimension) -> MarkdownTable:
    """One line per configuration: its step at the default, then its time and speed-up at each other value. `times` is a
    table as of `times_with_base`."""
    rows = times[times["phase"] == WHOLE_STEP]
    keys, values = keys_without(dimension.key), sorted_values(rows, dimension.key)
    wide = pivoted(rows, keys, dimension.key, ["mean_ms", "speed_up", "verdict"])

    def cells(row: dict) -> list[str]:
        wide_row = wide.loc[tuple(row[key] for key in keys)]
        gains = [
            time_and_gain(*(wide_row[(name, value)] for name in ("mean_ms", "speed_up", "verdict"))) for value in values
        ]
        return [with_spread(row["base_mean_ms"], row["base_std_ms"]), *gains]

    names = [f"{dimension.name_of(value)}, ms" for value in (dimension.default, *values)]
    return lines_table(rows.drop_duplicates(keys), LEADING_KEYS, names, cells, hidden=(dimension.key,))


def phases_table(times: pd.DataFrame, dimension: Dimension) -> MarkdownTable:
    """One line per run with a backward pass: the speed-up of each phase."""
    phases = [phase for phase in MAIN_PHASES if phase in set(times["phase"])]
    rows = times[(times["mode"] != FORWARD) & times["phase"].isin(phases)]
    keys = [*keys_without(dimension.key), dimension.key]
    wide = pivoted(rows, keys, "phase", ["speed_up", "verdict"])

    def cells(row: dict) -> list[str]:
        wide_row = wide.loc[tuple(row[key] for key in keys)]
        return [_judged(wide_row.get(("speed_up", phase)), wide_row.get(("verdict", phase))) for phase in phases]

    return lines_table(rows.drop_duplicates(keys), (*LEADING_KEYS, dimension.key), phases, cells)


def parts_tables(parts: pd.DataFrame) -> list[tuple[str, MarkdownTable]]:
    """Speed-up of the GPU time of each part, a column per model; one table with its title for each combination of the
    other dimensions that vary; none without ranges of parts. `parts` are rows of one phase, as of
    `parts_with_base`."""
    rows = split(if_parts_differ(parts), (MODEL.key, MODE.key))
    return [(title, parts_table(some, "base_share", lambda row: ratio(row["speed_up"]))) for title, some in rows]


def time_and_gain(ms: float, gain: float, verdict: str) -> str:
    """A time in ms with its speed-up over the default in brackets, "?" if processes differ as much: "12.3 (× 1.53)"."""
    return f"{significant(ms)} ({_judged(gain, verdict)})" if known(ms) else ABSENT


def _judged(gain: float, verdict: str) -> str:
    return ratio(gain) + (" ?" if verdict == UNTOLD else "")
