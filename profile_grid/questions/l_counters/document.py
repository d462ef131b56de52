"""What the document of (l) says: sentences and tables."""

import pandas as pd

from cs336_model.ranges import SOFTMAX
from kernel_tables.counters.verdicts import COMPUTE, LATENCY, MEMORY, RULES, TOO_SMALL, UNKNOWN
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, known, percent, rate, ratio, significant
from profile_grid.questions.l_counters.matmuls import MAX_PADDING, MAX_SUMS
from profile_grid.study.dimensions import MODES, PRECISION
from profile_grid.tables.cells import lines_table
from profile_grid.tables.claims import Claim
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, NO_RANGE
from profile_grid.tables.per_pass import in_order_of
from profile_grid.tables.pivoting import pivoted
from profile_grid.tables.ratio_tables import LEADING_KEYS
from profile_grid.tables.wording import capital, listed, places, run_in_words

NOT_COUNTED = Claim("Not answered: no run has counters of its kernels.", "missing")
WORDS = {
    COMPUTE: "arithmetic",
    MEMORY: "memory",
    LATENCY: "latency",
    TOO_SMALL: "too small a kernel",
    UNKNOWN: "what was not counted",
}


def sentences(measured: Measured) -> list[str]:
    """(l) What limits the time; then by mode, the kernel farthest from its roof, softmax and the check against the
    shapes."""
    kernels = measured.tables["counter_kernels"]
    if kernels.empty:
        return [NOT_COUNTED]
    modes = [rows for _, rows in kernels.groupby(["mode", PRECISION.key], sort=False)]
    return [_lead(modes), _limits(modes), _furthest(measured, kernels), *_softmax(measured), *_shapes(measured)]


def _shares(rows: pd.DataFrame) -> pd.DataFrame:
    """The share of each verdict in the time of the run's kernels."""
    return rows.pivot_table(index="run", columns="verdict", values="share", aggfunc="sum", fill_value=0.0)


def _name(rows: pd.DataFrame) -> str:
    return f"{MODES[rows['mode'].iloc[0]]} in {rows[PRECISION.key].iloc[0]}"


def _lead(modes: list[pd.DataFrame]) -> Claim:
    """What limits most of the time, of the first and of the last mode and precision."""
    texts = []
    for rows in modes[:1] if len(modes) == 1 else (modes[0], modes[-1]):
        shares = _shares(rows)
        most = shares.median().idxmax()
        texts.append(f"{WORDS[most]} limits {interval(shares[most], percent)} of the kernel time of a {_name(rows)}")
    return Claim("{texts}.", texts=capital(", and ".join(texts)))


def _limits(modes: list[pd.DataFrame]) -> Claim:
    """The share of each limit in the kernels' time, by mode and precision."""
    texts = []
    for rows in modes:
        shares = _shares(rows)
        parts = [
            f"{words} {interval(shares[verdict], percent)}"
            for verdict, words in WORDS.items()
            if verdict in shares.columns and (shares[verdict] > 0).any()
        ]
        texts.append(f"{_name(rows)}: {listed(parts)}")
    return Claim("Limits of {texts}.", texts="; ".join(texts))


def _furthest(measured: Measured, kernels: pd.DataFrame) -> Claim:
    """The kernel configuration that loses most time to its nearest roof."""
    roof_share = kernels[["compute_share", "memory_share"]].max(axis=1).clip(upper=1.0)
    lost = kernels.assign(nearer=roof_share, lost_ms=kernels["gpu_time_ms"] * (1 - roof_share))
    row = lost.loc[lost["lost_ms"].idxmax()]
    return Claim(
        "The largest shortfall: {kernel}, {ms} ms at {share} of its nearer roof ({run}).",
        kernel=measured.label(row["kernel"]), ms=significant(row["gpu_time_ms"]), share=percent(row["nearer"]),
        run=run_in_words(row),
    )  # fmt: skip


def _softmax(measured: Measured) -> list[Claim]:
    """Bytes and rate of the softmax of one layer, if a run has that part."""
    sums, layers = measured.tables["counter_sums"], measured.runs.set_index("run")["num_layers"]
    softmax = sums[(sums["by"] == "part") & (sums["phase"] == FORWARD) & (sums["name"] == SOFTMAX)]
    gb_per_layer = softmax["dram_bytes"].astype("float64") / softmax["run"].map(layers).astype("float64") / 1e9
    if gb_per_layer.dropna().empty:
        return []
    text = "In the forward phase, {softmax} moves {gb} GB per layer, at {share} of the memory's roof."
    shares = interval(softmax["memory_share"], percent)
    return [Claim(text, softmax=SOFTMAX, gb=interval(gb_per_layer, significant), share=shares)]


def _shapes(measured: Measured) -> list[Claim]:
    """Whether the counted FLOPs of matrix multiplies equal those of the shapes; which were not counted completely."""
    rows = measured.tables["counter_matmuls"]
    compared, incomplete = rows[rows["ratio"].notna()], rows[rows["ratio"].isna()]
    if compared.empty:
        return []
    unexplained = compared[~compared["within_padding"].astype(bool)]
    padded = compared[compared["padded_ratio"] > 1 + MAX_PADDING]
    parts = [
        f"Counted FLOPs are {interval(compared['ratio'], ratio)} those of the shapes, explained by padding in"
        f" {len(compared) - len(unexplained)} of {len(compared)} matrix multiplies"
    ]
    if len(padded):
        parts.append(f"padding adds {interval(padded['padded_ratio'] - 1, percent)} in {_named(padded)}")
    if len(unexplained):
        parts.append(f"not in {_named(unexplained)}")
    if len(incomplete):
        parts.append(f"not compared where launches were not counted: {_named(incomplete)}")
    return [Claim("{parts}.", "counted", parts="; ".join(parts))]


def _named(rows: pd.DataFrame) -> str:
    """The names of the parts in these rows, and where they are."""
    return f"{listed([escaped(part) for part in dict.fromkeys(rows['part'])])} ({places(rows, most=2)})"


def bandwidth(bytes_per_s: float) -> str:
    """A rate of memory: 4.3e12 is "4.30 TB/s"."""
    return (
        f"{significant(bytes_per_s / 1e12)} TB/s" if bytes_per_s >= 1e12 else f"{significant(bytes_per_s / 1e9)} GB/s"
    )


MAX_KERNELS, MAX_PARTS = 8, 10  # of a run


def kernels_table(measured: Measured) -> MarkdownTable:
    """(l) The kernel configurations of every run with the longest times: their work, and what limits them."""
    rows = measured.tables["counter_kernels"].groupby("run", sort=False).head(MAX_KERNELS)

    def cells(row: dict) -> tuple[str, ...]:
        waits = listed([reason for reason in (row["stall"], row["second_stall"]) if reason])
        occupancy = f"{percent(row['occupancy'])} of {percent(row['occupancy_possible'])}"
        return (
            measured.label(row["kernel"]), escaped(row["grid"]), row["verdict"], row["limited_by"] or ABSENT,
            waits or ABSENT, significant(row["gpu_time_ms"]), percent(row["share"]), rate(row["flop_per_s"]),
            percent(row["compute_share"]), speed(row["dram_bytes_per_s"]), percent(row["memory_share"]),
            significant(row["flops_per_byte"]), occupancy, significant(row["waves"]), percent(row["tail"]),
        )  # fmt: skip

    headings = (
        "kernel", "grid", "limited by", "occupancy limited by", "waits for", "ms", "of kernels", "FLOP/s", "of roof",
        "DRAM", "of roof", "FLOP/B", "occupancy", "waves", "tail",
    )  # fmt: skip
    return lines_table(rows, LEADING_KEYS, headings, cells, words=5)


def parts_table(measured: Measured) -> MarkdownTable:
    """(l) The parts of the model with the longest times in every run: the work of all their kernels."""
    return _sums_table(measured, "part", MAX_PARTS)


def phases_table(measured: Measured) -> MarkdownTable:
    """(l) The phases of every run: the work of all their kernels."""
    return _sums_table(measured, "phase", MAX_PARTS)


def matmuls_table(measured: Measured) -> MarkdownTable:
    """(l) FLOPs of matrix multiplies by counters and by the shapes, in runs of this project's model."""
    rows = measured.tables["counter_matmuls"]

    def cells(row: dict) -> tuple[str, ...]:
        within = ("yes" if row["within_padding"] else "no") if known(row["within_padding"]) else ABSENT
        figures = [significant(row[name] / 1e9, 4) for name in ("counted_flops", "shape_flops")]
        ratios = [ratio(row[name]) for name in ("ratio", "padded_ratio")]
        return row["pass"], escaped(row["part"]), *figures, *ratios, within, percent(row["counted_share"])

    of_shapes = ("counted, GFLOP", "shapes, GFLOP", "counted ÷ shapes", "in tiles ÷ shapes")
    figures = (*of_shapes, "within padding", "of its time counted")
    return lines_table(rows, LEADING_KEYS, ("pass", "part", *figures), cells, words=2)


def roofs_table(measured: Measured) -> MarkdownTable:
    """(l) One line per run: every measured roof, and its share of the data sheet."""
    rows = measured.tables["counter_roofs"]
    names = [roof for roof, roof_rows in rows.groupby("roof", sort=False) if roof_rows["reached_per_s"].notna().any()]
    wide = pivoted(rows, ["run"], "roof", ["reached_per_s", "reached_share"])

    def cell(run: str, roof: str) -> str:
        value, share = (wide[name][roof][run] for name in ("reached_per_s", "reached_share"))
        text = (speed if roof == "memory" else rate)(value)
        return f"{text} ({percent(share)})" if known(share) else text

    runs = rows.drop_duplicates("run")
    return lines_table(runs, LEADING_KEYS, names, lambda row: [cell(row["run"], roof) for roof in names])


def rules() -> dict[str, str]:
    """(l) The verdicts and their rules."""
    return RULES


def allowances() -> dict[str, str]:
    """(l) Allowed deviations of counted FLOPs: for `sums` of slices, and for padding if the tile is `untold`."""
    return {"sums": percent(MAX_SUMS), "untold": percent(MAX_PADDING)}


def speed(bytes_per_s) -> str:
    """A rate of memory, or that it is unknown."""
    return bandwidth(bytes_per_s) if known(bytes_per_s) else ABSENT


def _sums_table(measured: Measured, by: str, most: int) -> MarkdownTable:
    rows = measured.tables["counter_sums"]
    rows = rows[rows["by"] == by].sort_values("gpu_time_ms", ascending=False, kind="stable")
    rows = in_order_of(rows.groupby("run", sort=False).head(most), measured.runs["run"])

    def cells(row: dict) -> tuple[str, ...]:
        name = (row["phase"],) if by == "phase" else (row["phase"], escaped(row["name"] or NO_RANGE))
        return (
            *name, significant(row["gpu_time_ms"]), percent(row["share"]), count(round(row["invocations"], 1)),
            significant(row["flops"] / 1e9), percent(row["compute_share"]), significant(row["dram_bytes"] / 1e9),
            percent(row["memory_share"]), significant(row["flops_per_byte"]),
        )  # fmt: skip

    names = ("phase",) if by == "phase" else ("pass", by)
    figures = ("ms", "of kernels", "launches", "GFLOP", "of roof", "DRAM, GB", "of roof", "FLOP/B")
    return lines_table(rows, LEADING_KEYS, (*names, *figures), cells, words=len(names))
