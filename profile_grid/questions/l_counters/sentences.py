"""The sentences of (l): what limits the kernels, what is furthest from its roof, what the roofs are, and whether the
counters agree with the shapes."""

from __future__ import annotations

import pandas as pd

from cs336_model.ranges import SOFTMAX
from kernel_tables.counters.verdicts import COMPUTE, LATENCY, MEMORY, TOO_SMALL, UNKNOWN
from kernel_tables.markdown import escaped
from profile_grid.quantities import interval, known, percent, rate, ratio, significant
from profile_grid.questions.l_counters.padding import UNTOLD
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD
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
