"""What the document of (l) says: sentences and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from cs336_model.ranges import SOFTMAX
from kernel_tables.counters.verdicts import COMPUTE, LATENCY, MEMORY, RULES, TOO_SMALL, UNKNOWN
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, known, percent, rate, ratio, significant
from profile_grid.questions.l_counters.padding import SUMS, UNTOLD
from profile_grid.tables.apart import pivoted, shown_dimensions
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, NO_RANGE
from profile_grid.tables.wording import PASSES, extremes, listed, of_all, places

NOT_COUNTED = "Not answered: no run has counters of its kernels."
WORDS = {
    COMPUTE: "by arithmetic",
    MEMORY: "by memory",
    LATENCY: "by latency",
    TOO_SMALL: "by being too small for the GPU",
    UNKNOWN: "by what was not counted",
}


def sentences(measured: Measured) -> list[str]:
    """(l) By mode what limits the time; then what is furthest from its roof, memory's part, the roofs and the check."""
    kernels = measured.tables["counter_kernels"]
    if kernels.empty:
        return [NOT_COUNTED]
    said = [_limits(rows, mode) for mode, rows in kernels.groupby("mode", sort=False)]
    return [*said, _furthest(measured, kernels), *_memory_part(measured), *_roofs(measured), *_shapes(measured)]


def _limits(rows: pd.DataFrame, mode: str) -> str:
    """Which share of the kernels' time has which verdict."""
    shares = rows.pivot_table(index="run", columns="verdict", values="share", aggfunc="sum", fill_value=0.0)
    told = [
        f"{interval(shares[verdict], percent)} {words}"
        for verdict, words in WORDS.items()
        if verdict in shares.columns and (shares[verdict] > 0).any()
    ]
    return f"The kernels' time in {PASSES[mode]} is limited {listed(told)}."


def _furthest(measured: Measured, kernels: pd.DataFrame) -> str:
    """The kernel configuration that loses most time to its nearer roof, of each run; the extremes of these."""
    nearer = kernels[["compute_share", "memory_share"]].max(axis=1).clip(upper=1.0)
    lost = kernels.assign(nearer=nearer, lost_ms=kernels["gpu_time_ms"] * (1 - nearer))
    most = lost.loc[lost.groupby("run", sort=False)["lost_ms"].idxmax()]

    def told(row) -> str:
        time = f"{significant(row['gpu_time_ms'])} ms of {measured.label(row['kernel'])}"
        return f"{time} at {percent(row['nearer'])} of the nearer roof"

    return f"Most time is lost below the roofs in {extremes(most, 'lost_ms', told)}."


def _memory_part(measured: Measured) -> list[str]:
    """How much the softmax of the attention moves, and how fast, where a run has that part."""
    sums = measured.tables["counter_sums"]
    own = sums[(sums["by"] == "part") & (sums["phase"] == FORWARD) & (sums["name"] == SOFTMAX)]
    if own.empty:
        return []

    layers = measured.runs.set_index("run")["num_layers"]

    def told(row) -> str:
        every = row["dram_bytes"] / 1e9
        of_layer = f" ({significant(every / layers[row['run']])} GB per layer)" if known(layers[row["run"]]) else ""
        return f"{significant(every)} GB{of_layer} at {percent(row['memory_share'])} of the memory's roof"

    return [f"In the forward pass, **{SOFTMAX}** moves {extremes(own, 'dram_bytes', told)}."]


def _roofs(measured: Measured) -> list[str]:
    """What was reached on this GPU, and of the data sheet how much."""
    roofs = measured.tables["counter_roofs"]
    told = []
    for roof, rows in roofs[roofs["reached_per_s"].notna()].groupby("roof", sort=False):
        sheet = rows["reached_share"].dropna()
        of_sheet = f" ({interval(sheet, percent)} of the data sheet)" if len(sheet) else ""
        text = bandwidth if roof == "memory" else rate
        told.append(f"{interval(rows['reached_per_s'], text)}{of_sheet} {_by(roof)}")
    return [f"The roofs are what this GPU reached: {listed(told)}."] if told else []


def _shapes(measured: Measured) -> list[str]:
    """Whether the counted FLOPs of matrix multiplies are those of the shapes; which were not counted as a whole."""
    rows = measured.tables["counter_matmuls"]
    compared, lacking = rows[rows["ratio"].notna()], rows[rows["ratio"].isna()]
    said = [_against_shapes(compared)] if len(compared) else []
    shares = [
        f"{interval(1 - own['counted_share'], percent)} of the time of matrix multiplies in {_named(own)}"
        for _, own in lacking.groupby("part", sort=False)
    ]
    if shares:
        said.append(f"{listed(shares)} was not counted: FLOPs are not compared there.")
    return said


def _against_shapes(rows: pd.DataFrame) -> str:
    """How many counted multiplies the tiles explain, where they make much of it, and where names do not tell them."""
    off = rows[~rows["within_padding"].astype(bool)]
    wide, untold = rows[rows["padded_ratio"] > 1 + UNTOLD], rows[rows["padded_ratio"].isna()]
    within = of_all(len(rows) - len(off), len(rows), "matrix multiply").replace("multiplys", "multiplies")
    parts = [
        f"The counted FLOPs are {interval(rows['ratio'], ratio)} those from the shapes,"
        f" within the padding of tiles in {within}"
    ]
    if len(off):
        parts.append(f"beyond it in {_named(off)}")
    if len(wide):
        parts.append(f"the tiles make it {interval(wide['padded_ratio'], ratio)} in {_named(wide)}")
    if len(untold):
        parts.append(f"{percent(UNTOLD)} are allowed in {_named(untold)}, where names do not tell every tile")
    return "; ".join(parts) + "."


def _named(rows: pd.DataFrame) -> str:
    """The parts of these rows, and their places."""
    return f"{listed([f'**{escaped(part)}**' for part in dict.fromkeys(rows['part'])])} ({places(rows)})"


def bandwidth(bytes_per_s: float) -> str:
    """A rate of memory: 4.3e12 is "4.30 TB/s"."""
    return (
        f"{significant(bytes_per_s / 1e12)} TB/s" if bytes_per_s >= 1e12 else f"{significant(bytes_per_s / 1e9)} GB/s"
    )


def _by(roof: str) -> str:
    return "copying" if roof == "memory" else f"multiplying in {roof}"


LED_BY = ("model", "context_length", "mode")
MOST_KERNELS, MOST_PARTS = 8, 10  # of a run


def kernels_table(measured: Measured) -> MarkdownTable:
    """(l) The kernel configurations of every run with the most time: what they did, and what limits them."""
    rows = measured.tables["counter_kernels"].groupby("run", sort=False).head(MOST_KERNELS)

    def cells(row: dict) -> tuple[str, ...]:
        waits = listed([reason for reason in (row["stall"], row["second_stall"]) if reason])
        filled = f"{percent(row['occupancy'])} of {percent(row['occupancy_possible'])}"
        return (
            measured.label(row["kernel"]), escaped(row["grid"]), row["verdict"], row["limited_by"] or ABSENT,
            waits or ABSENT, significant(row["gpu_time_ms"]), percent(row["share"]), rate(row["flop_per_s"]),
            percent(row["compute_share"]), speed(row["dram_bytes_per_s"]), percent(row["memory_share"]),
            significant(row["flops_per_byte"]), filled, significant(row["waves"]), percent(row["tail"]),
        )  # fmt: skip

    headings = (
        "kernel", "grid", "limited by", "occupancy limited by", "waits for", "ms", "of kernels", "FLOP/s", "of roof",
        "DRAM", "of roof", "FLOP/B", "occupancy", "waves", "tail",
    )  # fmt: skip
    return _by_run(rows, headings, cells, words=5)


def parts_table(measured: Measured) -> MarkdownTable:
    """(l) The parts of the model with the most time in every run: what all their kernels did."""
    return _sums_table(measured, "part", MOST_PARTS)


def phases_table(measured: Measured) -> MarkdownTable:
    """(l) The phases of every run: what all their kernels did."""
    return _sums_table(measured, "phase", MOST_PARTS)


def matmuls_table(measured: Measured) -> MarkdownTable | None:
    """(l) FLOPs of matrix multiplies by counters and by the shapes; None where no run is of this project's model."""
    rows = measured.tables["counter_matmuls"]
    if rows.empty:
        return None

    def cells(row: dict) -> tuple[str, ...]:
        within = ("yes" if row["within_padding"] else "no") if known(row["within_padding"]) else ABSENT
        figures = [significant(row[name] / 1e9, 4) for name in ("counted_flops", "shape_flops")]
        ratios = [ratio(row[name]) for name in ("ratio", "padded_ratio")]
        return row["pass"], escaped(row["part"]), *figures, *ratios, within, percent(row["counted_share"])

    of_shapes = ("counted, GFLOP", "shapes, GFLOP", "counted ÷ shapes", "in tiles ÷ shapes")
    figures = (*of_shapes, "within padding", "of its time counted")
    return _by_run(rows, ("pass", "part", *figures), cells, words=2)


def roofs_table(measured: Measured) -> MarkdownTable:
    """(l) One line per run: every roof as it was reached, and of the data sheet how much."""
    rows = measured.tables["counter_roofs"]
    names = [roof for roof, own in rows.groupby("roof", sort=False) if own["reached_per_s"].notna().any()]
    wide = pivoted(rows, ["run"], "roof", ["reached_per_s", "reached_share"])

    def cell(run: str, roof: str) -> str:
        value, share = (wide[name][roof][run] for name in ("reached_per_s", "reached_share"))
        text = (speed if roof == "memory" else rate)(value)
        return f"{text} ({percent(share)})" if known(share) else text

    return _by_run(
        rows.drop_duplicates("run"), names, lambda row: tuple(cell(row["run"], roof) for roof in names), words=0
    )


def rules() -> dict[str, str]:
    """(l) The verdicts and their rules."""
    return RULES


def allowances() -> dict[str, str]:
    """(l) What counted FLOPs may differ by for `sums` of slices, and, where the tile is `untold`, for padding."""
    return {"sums": percent(SUMS), "untold": percent(UNTOLD)}


def speed(bytes_per_s) -> str:
    """A rate of memory, or that there is none."""
    return bandwidth(bytes_per_s) if known(bytes_per_s) else ABSENT


def _sums_table(measured: Measured, by: str, most: int) -> MarkdownTable:
    rows = measured.tables["counter_sums"]
    rows = rows[rows["by"] == by].sort_values("gpu_time_ms", ascending=False, kind="stable")
    rows = rows.groupby("run", sort=False).head(most).sort_values("run", kind="stable", key=_order_of(measured))

    def cells(row: dict) -> tuple[str, ...]:
        name = (row["phase"],) if by == "phase" else (row["phase"], escaped(row["name"] or NO_RANGE))
        return (
            *name, significant(row["gpu_time_ms"]), percent(row["share"]), count(round(row["invocations"], 1)),
            significant(row["flops"] / 1e9), percent(row["compute_share"]), significant(row["dram_bytes"] / 1e9),
            percent(row["memory_share"]), significant(row["flops_per_byte"]),
        )  # fmt: skip

    names = ("phase",) if by == "phase" else ("pass", by)
    figures = ("ms", "of kernels", "launches", "GFLOP", "of roof", "DRAM, GB", "of roof", "FLOP/B")
    return _by_run(rows, (*names, *figures), cells, words=len(names))


def _order_of(measured: Measured) -> Callable[[pd.Series], pd.Series]:
    order = {run: number for number, run in enumerate(measured.runs["run"])}
    return lambda runs: runs.map(order)


def _by_run(rows: pd.DataFrame, headings: Sequence[str], cells: Callable, words: int) -> MarkdownTable:
    """One line per row, led by the dimensions of its run; the first `words` cells are text."""
    shown = shown_dimensions(rows, LED_BY)
    lines = tuple((*leading_cells(row, shown), *cells(row)) for row in rows.to_dict("records"))
    return MarkdownTable((*headings_of(shown), *headings), lines, first_right=len(shown) + words)
