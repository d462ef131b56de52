"""The table that the document of (j) shows."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import Table
from profile_grid.quantities import ABSENT, known, memory, percent, ratio, with_spread
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import CHECKPOINT
from profile_grid.tables import ratio_tables
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP

MEMORY = {
    "peak_allocated_bytes": "most memory",
    "recorded_peak_bytes": "most recorded",
    "recorded_kept_bytes": "kept, recorded",
    "kept_bytes": "kept, by shapes",
}


def trade_table(measured: Measured) -> Table | None:
    """(j) One line per training run, that without checkpoints among them: its step, how many times as long that is,
    its memory as far as any run tells it, and the part of GPU time that computes again; or why there is none."""
    taken, times = measured.tables["checkpoint_memory"], measured.tables["checkpoint_times"]
    if taken.empty:
        return None
    steps = times[times["phase"] == WHOLE_STEP].set_index("run")
    shown = shown_dimensions(taken, (*ratio_tables.ALWAYS, CHECKPOINT.key))
    sizes = [name for name in MEMORY if taken[name].notna().any()]
    lines = []
    for row in taken.to_dict("records"):
        complete = row["status"] == COMPLETE
        time = with_spread(row["mean_ms"], row["std_ms"]) if complete else status_word(row["status"])
        longer = _longer(steps.loc[row["run"]]) if row["run"] in steps.index else (ABSENT, ABSENT)
        lines.append((*leading_cells(row, shown), time, *longer, *_memory(row, sizes)))
    headings = ("step, ms", "times as long", "by FLOPs", *(MEMORY[name] for name in sizes), "computed again")
    return Table((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def _longer(row: pd.Series) -> tuple[str, str]:
    ideal = ratio(1 / row["ideal_by_flops"]) if known(row["ideal_by_flops"]) else ABSENT
    return ratio(1 / row["speed_up"], row["speed_up_std"] / row["speed_up"] ** 2), ideal


def _memory(row: dict, sizes: list[str]) -> tuple[str, ...]:
    told = (memory(row[name]) if known(row[name]) else ABSENT for name in sizes)
    return *told, percent(row["recomputed_share"])
