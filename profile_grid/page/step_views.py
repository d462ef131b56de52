"""What the page shows of captured steps: at the top, the picture of the longest one, how fast it is, and what would
shorten it; the flame graph of each run; and the timeline of one run."""

import pandas as pd

from kernel_tables.attribution.path_text import names_in
from kernel_tables.markdown import escaped
from kernel_tables.page.step import Leaf, Picture, flame, picture
from kernel_tables.page.timeline import Names, Timeline, TimelineBar, lane_title, timeline
from kernel_tables.views.timeline import KERNEL, TRACKS
from profile_grid.figures.panels import Tables
from profile_grid.gpu_peaks import peaks_of
from profile_grid.quantities import count, known, percent, significant
from profile_grid.stages.capture.timeline import MAIN
from profile_grid.study.dimensions import BATCH_SIZE, DIMENSIONS, FULLEST_FIRST, MODE, PRECISION
from profile_grid.tables import largest_gains, per_pass
from profile_grid.tables.names import FORWARD, STEP, WHOLE_STEP
from profile_grid.tables.pivoting import sorted_values
from profile_grid.tables.wording import capital, config_in_words, run_in_words

ADVICE_TABLES = largest_gains.SOURCES
MAX_ADVICE, MAX_VALUES = 3, 8  # pieces of advice; values of a dimension that are named
FORWARDS_PER_STEP = 3  # matrix multiplies of a training step, in forward passes: the backward pass has two
ALWAYS_NAMED = (BATCH_SIZE, PRECISION)  # dimensions whose defaults are named, too
PICTURE_KEY = "Each bar is a phase, divided into the parts of the model; the strip below it into classes of kernels."
MAX_FLAMES = 60
LEAF_KEYS = ["phase", "range", "kernel", "class"]
RANK_END = ": "  # in the name of a lane of a run with several ranks: "rank 1: stream 7"


def speed(tables: Tables, run: str) -> str:
    """A sentence in Markdown: the time of a step of this run, tokens per second, and the share of the GPU's peak."""
    row = tables["runs"].set_index("run", drop=False).loc[run].to_dict()
    timings = tables["timings"]
    timed = timings[(timings["run"] == run) & (timings["phase"] == WHOLE_STEP) & timings["mean_ms"].notna()]
    at_default = [dimension for dimension in ALWAYS_NAMED if row[dimension.key] == dimension.default]
    defaults = ", ".join(escaped(dimension.title(dimension.default)) for dimension in at_default)
    name = f"A {MODE.name_of(row[MODE.key])} of {config_in_words(row)}" + (f" ({defaults})" if defaults else "")
    if timed.empty:
        return f"{name} was not timed without a profiler."
    seconds = timed["mean_ms"].iloc[0] / 1e3
    tokens = row[BATCH_SIZE.key] * row["context_length"] / seconds
    text = f"{name} takes **{significant(seconds * 1e3)} ms**: {tokens:,.0f} tokens per second"
    return f"{text}{_of_peak(row, seconds)}."


def _of_peak(row: dict, seconds: float) -> str:
    """The FLOP/s of the model's matrix multiplies in a step, as a share of the data sheet's peak."""
    peaks = peaks_of(row["device_name"])
    peak = peaks.flop_per_s(row[PRECISION.key]) if peaks else None
    if not peak or not known(row["forward_flops"]):
        return ""
    flops = row["forward_flops"] * (1 if row[MODE.key] == FORWARD else FORWARDS_PER_STEP)
    precision = escaped(row[PRECISION.key])
    return f", {percent(flops / seconds / peak)} of the peak in {precision} (model FLOP utilization)"


def advice(tables: Tables, run: str) -> list[str]:
    """What would shorten the step of this run most, by its diagnosis, in Markdown; empty if nothing was diagnosed."""
    findings = largest_gains.largest_first(per_pass.Merged(tables))
    findings = findings[(findings["run"] == run) & ~findings["abstained"].astype(bool) & (findings["percent"] > 0)]
    return [
        f"{escaped(capital(str(row.advice)))}: saves at most {percent(row.percent / 100)} of the step"
        for row in findings.head(MAX_ADVICE).itertuples()
    ]


def scope(runs: pd.DataFrame) -> str:
    """The values of the dimensions of these runs, in Markdown: "model small, medium; context 512; batch 4; fp32"."""
    parts = []
    for dimension in DIMENSIONS:
        values = sorted_values(runs.dropna(subset=dimension.key), dimension.key)
        if values and (dimension.default is None or values != [dimension.default] or dimension in ALWAYS_NAMED):
            names = ", ".join(escaped(dimension.name_of(value)) for value in values[:MAX_VALUES])
            more = f" and {len(values) - MAX_VALUES} more" if len(values) > MAX_VALUES else ""
            parts.append(f"{dimension.heading} {names}{more}")
    return "; ".join(parts)


def flames(tables: Tables, names: Names) -> tuple[dict[str, dict], str]:
    """(flame graphs by run, a sentence on the runs without one). Runs of the fullest mode come first; at most
    MAX_FLAMES have a graph. The sentence is "" if all have one."""
    kernels, modes = tables["kernels"], tables["runs"].set_index("run")["mode"]
    runs = sorted(dict.fromkeys(kernels["run"]), key=lambda run: FULLEST_FIRST.index(modes[run]))
    shown, left_out = runs[:MAX_FLAMES], len(runs) - MAX_FLAMES
    groups = kernels[kernels["run"].isin(shown)].groupby("run", sort=False, observed=True)
    sentence = (
        f"To limit the size of the page, {left_out} more runs have no flame graph; the table of kernels has them."
    )
    return {run: flame(leaves(groups.get_group(run)), names) for run in shown}, (sentence if left_out > 0 else "")


def leaves(kernels: pd.DataFrame) -> list[Leaf]:
    """Time and launches of each kernel in each range path, per step: the means of the measured steps of one run."""
    steps = kernels[kernels["step"] >= 0]
    steps = steps.assign(**{key: steps[key].astype("object").fillna("").astype("str") for key in LEAF_KEYS})
    sums = steps.groupby(LEAF_KEYS, sort=False)[["total_ns", "launches"]].sum() / max(steps["step"].nunique(), 1)
    return [
        Leaf((phase, *names_in(path)), kernel, kernel_class, time_ns / 1e6, launches)
        for (phase, path, kernel, kernel_class), (time_ns, launches) in zip(sums.index, sums.to_numpy(), strict=True)
    ]


def opening_run(tables: Tables) -> str | None:
    """The run whose step takes the most GPU time, of the fullest mode that was captured; None without kernels."""
    kernels, modes = tables["kernels"], tables["runs"].set_index("run")["mode"]
    groups = kernels[kernels["step"] >= 0].groupby("run", observed=True)
    times = groups["total_ns"].sum() / groups["step"].nunique()
    return min(times.index, key=lambda run: (FULLEST_FIRST.index(modes[run]), -times[run]), default=None)


def opening(tables: Tables, run: str) -> tuple[Picture, str]:
    """The picture of a step of this run, and its caption in Markdown."""
    kernels, runs = tables["kernels"], tables["runs"].set_index("run", drop=False)
    kernels = kernels[(kernels["run"] == run) & (kernels["step"] >= 0)]
    name, steps = run_in_words(runs.loc[run]), count(kernels["step"].nunique())
    text = f"One step of {name}: time on the device, mean of captured steps ({steps})."
    return picture(leaves(kernels)), " ".join([text, *_busy(tables["phases"], run), PICTURE_KEY])


def _busy(phases: pd.DataFrame, run: str) -> list[str]:
    """A sentence on how long the device was busy in the step, if that was measured."""
    step = phases[(phases["run"] == run) & (phases["phase"] == WHOLE_STEP) & (phases["step"] >= 0)]
    span, busy = step["gpu_span_ns"].sum(), step["gpu_busy_ns"].sum()
    return [f"The device was busy for {percent(busy / span)} of the step."] if span > 0 else []


def run_timeline(table: pd.DataFrame, names: Names) -> Timeline | None:
    """The timeline of a step from its table, rank by rank: a lane for each level of ranges on each thread, for each
    thread that makes calls, and for each stream; None without rows."""
    rows = table.rename(columns={"class": "kernel_class"}).itertuples(index=False)
    return timeline(map(_bar, rows), names) if len(table) else None


def _bar(row) -> TimelineBar:
    rank, end, device = row.lane.rpartition(RANK_END)  # device: a thread or a stream
    level = 0 if row.track == KERNEL else row.depth
    # Lanes are sorted by this: rank by rank, the main thread first; numbers at the ends of names by size.
    lane = (len(rank), rank, TRACKS.index(row.track), device != MAIN, len(device), device, level)
    title = lane_title(row.track, f"device, {device}" if row.track == KERNEL else device, level)
    path = names_in(row.path)
    path_in_step = tuple(path[path.index(STEP) + 1 :] if STEP in path else path)
    return TimelineBar(
        lane=lane, title=f"{rank}{end}{title}", track=row.track, name=row.name, kernel_class=row.kernel_class,
        path=path_in_step, start_ns=row.start_ns, end_ns=row.end_ns,
    )  # fmt: skip
