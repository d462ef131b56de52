"""What the document of (l) says: sentences and tables."""

from collections.abc import Iterable

import pandas as pd

from cs336_model.ranges import SOFTMAX
from kernel_tables.counters.joining import COMPUTE, LATENCY, MEMORY, RULES, TOO_SMALL, UNKNOWN
from kernel_tables.counters.metrics import STALLED_BY
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, known, percent, rate, ratio, significant, yes_or_no
from profile_grid.questions.l_counters.matmuls import MAX_PADDING, MAX_SPLIT_K_SHARE
from profile_grid.study.dimensions import MODES, PRECISION
from profile_grid.tables import gains, per_pass, pivoting
from profile_grid.tables.cells import Part, lines_table, rows_table
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, NO_RANGE
from profile_grid.tables.wording import Claim, capital, config_in_words, configs_in_words, listed, run_in_words

VERDICT_RULES = RULES  # by verdict; definitions.md.j2 reads this name and the next
ALLOWANCES = {"sums": percent(MAX_SPLIT_K_SHARE), "unknown_tile": percent(MAX_PADDING)}
NO_ANSWER = Claim("Not answered: no run has counters of its kernels.", "missing")
LIMITS = {  # by verdict, what limits the kernel, as the subject of a sentence
    COMPUTE: "computation",
    MEMORY: "memory",
    LATENCY: "latency",
    TOO_SMALL: "too small a kernel",
    UNKNOWN: "what was not counted",
}


def sentences(measured: Measured) -> list[Claim]:
    """(l) What limits kernels; then the kernel that could gain most, softmax, and counted FLOPs against the shapes."""
    kernels = measured.tables["counter_kernels"]
    if kernels.empty:
        return [NO_ANSWER]
    return [_lead(kernels), _furthest(measured, kernels), *_softmax(measured), *_matmul_check(measured)]


def _verdict_shares(rows: pd.DataFrame) -> pd.DataFrame:
    """The share of each verdict in the time of the kernels of each run: a row per run, a column per verdict."""
    return rows.pivot_table(index="run", columns="verdict", values="share", aggfunc="sum", fill_value=0.0)


def _mode_and_precision(rows: pd.DataFrame) -> str:
    """The mode and precision of these rows in words, with the configuration if all rows are of one run."""
    row = rows.iloc[0].to_dict()
    place = f" ({config_in_words(row | {PRECISION.key: PRECISION.default})})" if rows["run"].nunique() == 1 else ""
    return f"{MODES[row['mode']]} in {row[PRECISION.key]}{place}"


def _lead(kernels: pd.DataFrame) -> Claim:
    """What limits most of the kernel time, for the first and for the last combination of mode and precision."""
    groups, texts = [rows for _, rows in kernels.groupby(["mode", PRECISION.key], sort=False)], []
    for rows in groups if len(groups) == 1 else (groups[0], groups[-1]):
        shares = _verdict_shares(rows)
        limit = shares.median().idxmax()
        preposition = "in" if texts else "of the kernel time of"
        share = interval(shares[limit], percent)
        texts.append(f"{LIMITS[limit]} limits {share} {preposition} a {_mode_and_precision(rows)}")
    return Claim("{texts}.", texts=capital(", and ".join(texts)))


def _furthest(measured: Measured, kernels: pd.DataFrame) -> Claim:
    """The kernel configuration that would save the most time at its nearest roof."""
    roof_share = kernels[["compute_share", "memory_share"]].max(axis=1).clip(upper=1.0)
    lost_ms = kernels["gpu_time_ms"] * (1 - roof_share)
    row = kernels.loc[lost_ms.idxmax()]
    return Claim(
        "In its own precision, {kernel} could gain the most: it takes {ms} ms, and would take {least} ms at its nearest"
        " roof, a measured rate of computation or memory ({run}).",
        kernel=measured.label(row["kernel"]), ms=significant(row["gpu_time_ms"]),
        least=significant(row["gpu_time_ms"] - lost_ms.max()), run=run_in_words(row),
    )  # fmt: skip


def _softmax(measured: Measured) -> list[Claim]:
    """GB of DRAM that softmax moves per layer in the forward phase, and its share of the roof; [] if unknown."""
    sums, layers = measured.tables["counter_sums"], measured.runs.set_index("run")["num_layers"]
    softmax = sums[(sums["by"] == "part") & (sums["phase"] == FORWARD) & (sums["name"] == SOFTMAX)]
    gb_per_layer = softmax["dram_bytes"].astype("float64") / softmax["run"].map(layers).astype("float64") / 1e9
    if gb_per_layer.dropna().empty:
        return []
    text = "In the forward phase, {softmax} moves {gb} GB per layer, at {share} of the DRAM roof."
    shares = interval(softmax["memory_share"], percent)
    return [Claim(text, softmax=SOFTMAX, gb=interval(gb_per_layer, significant), share=shares)]


def _matmul_check(measured: Measured) -> list[Claim]:
    """Whether padding explains by how much the counted FLOPs of matrix multiplies differ from those of the shapes; and
    which parts were not counted completely."""
    rows = measured.tables["counter_matmuls"]
    compared, incomplete = rows[rows["ratio"].notna()], rows[rows["ratio"].isna()]
    if compared.empty:
        return []
    unexplained = compared[~compared["within_padding"].astype(bool)]
    padded = compared[compared["padded_ratio"] > 1 + MAX_PADDING]
    explained_count, every = len(compared) - len(unexplained), len(compared)
    explained = f"all {every}" if explained_count == every > 1 else f"{explained_count} of {every}"
    texts = [
        f"Counted FLOPs are {interval(compared['ratio'], significant)} times those of the shapes. Padding to whole"
        " tiles, scaling of results and adding up slices of K can explain the difference in"
        f" {explained} rows of the table of FLOPs"
    ]
    if len(padded):
        amount = interval(padded["padded_ratio"] - 1, percent)
        texts.append(f"padding adds {amount} in {len(padded)} of them ({_phases_and_places(padded)})")
    if len(unexplained):
        texts.append(f"not in {_parts_and_places(unexplained)}")
    if len(incomplete):
        texts.append(f"not compared where launches were not counted: {_parts_and_places(incomplete)}")
    return [Claim("{parts}.", "counted", parts="; ".join(texts))]


def _parts_and_places(rows: pd.DataFrame) -> str:
    """The names of the parts in these rows, and the configurations."""
    return f"{listed([escaped(part) for part in dict.fromkeys(rows['part'])])} ({configs_in_words(rows, max_names=2)})"


def _phases_and_places(rows: pd.DataFrame) -> str:
    """The names of the parts in these rows with their phases, and the configurations."""
    parts = dict.fromkeys(f"{row['pass']} {escaped(row['part'])}" for row in rows.to_dict("records"))
    return f"{listed([*parts])}; {configs_in_words(rows, max_names=2)}"


def stall_names(results: Iterable[Measured]) -> str:
    """The reasons for which the kernels of the table wait, each with Nsight Compute's name."""
    kernels = pd.concat([_longest_kernels(measured) for measured in results])
    reasons = {*kernels["stall"], *kernels["second_stall"]}
    return ", ".join(f"{reason} `{name}`" for name, reason in STALLED_BY.items() if reason in reasons)


MAX_KERNELS, MAX_PARTS = 8, 10  # of a run


def tables(measured: Measured) -> list[Part]:
    """(l) What limits each run; the work of the longest kernels and parts, and of the phases; FLOPs; roofs."""
    return [
        ("What limits the time of the kernels of a run", _limits_table(measured)),
        ("The kernels with the most time in a single pass, separately for each launch grid, and what limits them",
         _kernels_table(measured)),
        ("The parts of the model with the most time", _sums_table(measured, "part")),
        ("The phases", _sums_table(measured, "phase")),
        ("FLOPs of the matrix multiplies in a single pass, by counters and from the shapes", _matmuls_table(measured)),
        ("The roofs, measured on this GPU by copying and multiplying; in brackets the share of the data"
         " sheet's peak",
         _roofs_table(measured)),
    ]  # fmt: skip


def _limits_table(measured: Measured) -> MarkdownTable:
    """One line per run: the share of each limit in the time of its kernels."""
    kernels = measured.tables["counter_kernels"]
    shares = _verdict_shares(kernels) if len(kernels) else pd.DataFrame()
    limits = [verdict for verdict in LIMITS if verdict in shares]
    columns = [(limit, lambda row, limit=limit: percent(shares.loc[row["run"], limit])) for limit in limits]
    return rows_table(kernels.drop_duplicates("run"), gains.LEADING_KEYS, columns)


def _kernels_table(measured: Measured) -> MarkdownTable:
    """(l) One line per run and kernel configuration, of those with the longest times: its work, and what limits it."""
    rows = _longest_kernels(measured)

    def cells(row: dict) -> tuple[str, ...]:
        waits = listed([reason for reason in (row["stall"], row["second_stall"]) if reason])
        occupancy = f"{percent(row['occupancy'])} of {percent(row['occupancy_possible'])}"
        return (
            measured.label(row["kernel"]), escaped(row["grid"]), row["verdict"], row["limited_by"] or ABSENT,
            waits or ABSENT, significant(row["gpu_time_ms"]), percent(row["share"]), rate(row["flop_per_s"]),
            percent(row["compute_share"]), bandwidth(row["dram_bytes_per_s"]), percent(row["memory_share"]),
            significant(row["flops_per_byte"]), occupancy, significant(row["waves"]), percent(row["tail"]),
        )  # fmt: skip

    headings = (
        "kernel", "launch grid", "limited by", "occupancy limited by", "waits for", "ms", "share", "FLOP/s",
        "of FLOP roof", "DRAM", "of DRAM roof", "FLOP/B", "occupancy", "waves", "tail",
    )  # fmt: skip
    return lines_table(rows, gains.LEADING_KEYS, headings, cells, left_aligned=5)


def _longest_kernels(measured: Measured) -> pd.DataFrame:
    return measured.tables["counter_kernels"].groupby("run", sort=False).head(MAX_KERNELS)


def _matmuls_table(measured: Measured) -> MarkdownTable:
    """(l) FLOPs of matrix multiplies by counters and by the shapes, in runs of this project's model."""
    rows = measured.tables["counter_matmuls"]

    def cells(row: dict) -> tuple[str, ...]:
        gflops = [significant(row[name] / 1e9, 4) for name in ("counted_flops", "shape_flops")]
        ratios = [ratio(row[name]) for name in ("ratio", "padded_ratio")]
        within_padding, counted_share = yes_or_no(row["within_padding"]), percent(row["counted_share"])
        return row["pass"], escaped(row["part"]), *gflops, *ratios, within_padding, counted_share

    headings = (
        "phase", "part", "counted, GFLOP", "shapes, GFLOP", "counted ÷ shapes", "in tiles ÷ shapes", "within padding",
        "share of time counted",
    )  # fmt: skip
    return lines_table(rows, gains.LEADING_KEYS, headings, cells, left_aligned=2)


def _roofs_table(measured: Measured) -> MarkdownTable:
    """(l) One line per run: every measured roof, and its share of the data sheet."""
    rows = measured.tables["counter_roofs"]
    cells = pivoting.pivoted_texts(rows, ["run"], "roof", _roof_cell)
    reached = set(rows.loc[rows["reached_per_s"].notna(), "roof"])
    roofs = [roof for roof in cells if roof in reached]
    headings = ["DRAM" if roof == "memory" else roof for roof in roofs]
    return lines_table(
        rows.drop_duplicates("run"), gains.LEADING_KEYS, headings, lambda row: cells.loc[row["run"], roofs]
    )


def _roof_cell(row: dict) -> str:
    reached = row["reached_per_s"]
    text = bandwidth(reached) if row["roof"] == "memory" else rate(reached)
    return f"{text} ({percent(row['reached_share'])})" if known(row["reached_share"]) else text


def bandwidth(bytes_per_s: float) -> str:
    """A rate of memory in words: 4.3e12 is "4.30 TB/s"."""
    if not known(bytes_per_s):
        return ABSENT
    size, unit = (1e12, "TB/s") if bytes_per_s >= 1e12 else (1e9, "GB/s")
    return f"{significant(bytes_per_s / size)} {unit}"


def _sums_table(measured: Measured, by: str) -> MarkdownTable:
    """(l) One line per run and phase, or part of the model, of those with the longest times: its work and rates. `by`
    is "phase" or "part"."""
    rows = measured.tables["counter_sums"]
    rows = rows[rows["by"] == by].sort_values("gpu_time_ms", ascending=False, kind="stable")
    rows = per_pass.in_order_of(rows.groupby("run", sort=False).head(MAX_PARTS), measured.runs["run"])
    columns = [("phase", lambda row: row["phase"])]
    if by != "phase":
        columns.append((by, lambda row: escaped(row["name"] or NO_RANGE)))
    return rows_table(rows, gains.LEADING_KEYS, (*columns, *SUM_COLUMNS), left_aligned=len(columns))


SUM_COLUMNS = (
    ("ms", lambda row: significant(row["gpu_time_ms"])),
    ("share", lambda row: percent(row["share"])),
    ("launches", lambda row: count(round(row["invocations"], 1))),
    ("GFLOP", lambda row: significant(row["flops"] / 1e9)),
    ("of FLOP roof", lambda row: percent(row["compute_share"])),
    ("DRAM, GB", lambda row: significant(row["dram_bytes"] / 1e9)),
    ("of DRAM roof", lambda row: percent(row["memory_share"])),
    ("FLOP/B", lambda row: significant(row["flops_per_byte"])),
)
