"""Flame views of the captured runs, the picture of the longest step, and the timeline of one."""

import pandas as pd

from kernel_tables.attribution.path_text import names_in
from kernel_tables.page.names import Names
from kernel_tables.page.step import Leaf, Picture, flame, picture
from kernel_tables.page.timeline import Timeline, TimelineBar, lane_title, timeline
from kernel_tables.views.timeline import KERNEL, TRACKS
from profile_grid.figures.drawing import Tables
from profile_grid.quantities import count, percent
from profile_grid.stages.capture.timeline import MAIN
from profile_grid.study.dimensions import FULLEST_FIRST
from profile_grid.tables.names import STEP
from profile_grid.tables.wording import run_in_words

MAX_RUNS = 60
KEYS = ["phase", "range", "kernel", "class"]
RANK_END = ": "  # after the rank in the name of a lane


def flames(tables: Tables, names: Names) -> tuple[dict[str, dict], str]:
    """(flame views by run, fullest mode first, at most MAX_RUNS; a sentence on the rest or "")."""
    rank = dict(zip(tables["runs"]["run"], tables["runs"]["mode"].map(FULLEST_FIRST.index), strict=True))
    present = sorted(dict.fromkeys(tables["kernels"]["run"]), key=rank.__getitem__)
    shown, left_out = present[:MAX_RUNS], len(present) - MAX_RUNS
    chosen = tables["kernels"][tables["kernels"]["run"].isin(shown)]
    by_run = {str(run): run_kernels for run, run_kernels in chosen.groupby("run", sort=False, observed=True)}
    sentence = f"To limit the size of the page, {left_out} more runs have no flame view; the table of kernels has them."
    return {run: flame(leaves(by_run[run]), names) for run in shown}, sentence if left_out > 0 else ""


def leaves(kernels: pd.DataFrame) -> list[Leaf]:
    """Time of each kernel in each range path, per step: the mean of the measured steps of one run."""
    measured = kernels[kernels["step"] >= 0]
    measured = measured.assign(**{key: measured[key].astype("object").fillna("").astype("str") for key in KEYS})
    sums = measured.groupby(KEYS, sort=False)[["total_ns", "launches"]].sum() / max(measured["step"].nunique(), 1)
    return [
        Leaf((phase, *names_in(path)), kernel, kernel_class, time_ns / 1e6, launches)
        for (phase, path, kernel, kernel_class), (time_ns, launches) in zip(sums.index, sums.to_numpy(), strict=True)
    ]


def opening_run(tables: Tables) -> str | None:
    """The run whose step takes the most GPU time, of the fullest mode that was captured; None without kernels."""
    kernels, runs = tables["kernels"], tables["runs"].set_index("run", drop=False)
    by_run = kernels[kernels["step"] >= 0].groupby("run", observed=True)
    times = by_run["total_ns"].sum() / by_run["step"].nunique()
    modes = {run: FULLEST_FIRST.index(runs.loc[run, "mode"]) for run in times.index}
    return min(times.index, key=lambda run: (modes[run], -times[run]), default=None)


def opening(tables: Tables, run: str) -> tuple[Picture, str]:
    """The picture of a step of this run, and its caption in Markdown."""
    kernels, runs = tables["kernels"], tables["runs"].set_index("run", drop=False)
    kernels = kernels[(kernels["run"] == run) & (kernels["step"] >= 0)]
    name, steps = run_in_words(runs.loc[run]), count(kernels["step"].nunique())
    text = f"One step of {name}: time on the device, mean of {steps} captured steps."
    return picture(leaves(kernels)), " ".join([text, *_busy(tables["phases"], run), KEY])


KEY = "Each bar is a phase, divided into the parts of the model; the strip below it into classes of kernels."


def _busy(phases: pd.DataFrame, run: str) -> list[str]:
    """A sentence on how long the device was busy in the step, if that was measured."""
    step = phases[(phases["run"] == run) & (phases["phase"] == "step") & (phases["step"] >= 0)]
    span, busy = step["gpu_span_ns"].sum(), step["gpu_busy_ns"].sum()
    return [f"The device was busy for {percent(busy / span)} of the step."] if span > 0 else []


def run_timeline(table: pd.DataFrame, names: Names) -> Timeline | None:
    """The timeline of a step from its table: a lane per thread and level of ranges, per calling thread, and per stream,
    rank by rank; None without rows."""
    rows = table.rename(columns={"class": "kernel_class"}).itertuples(index=False)
    return timeline(map(_bar, rows), names) if len(table) else None


def _bar(row) -> TimelineBar:
    """The bar of a row of the table."""
    rank, end, device = row.lane.rpartition(RANK_END)
    level = 0 if row.track == KERNEL else row.depth
    lane = (len(rank), rank, TRACKS.index(row.track), device != MAIN, len(device), device, level)
    title = lane_title(row.track, f"device, {device}" if row.track == KERNEL else device, level)
    path = names_in(row.path)
    below = tuple(path[path.index(STEP) + 1 :] if STEP in path else path)
    return TimelineBar(
        lane, f"{rank}{end}{title}", row.track, row.name, row.kernel_class, below, row.start_ns, row.end_ns
    )
