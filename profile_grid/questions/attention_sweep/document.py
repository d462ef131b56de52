"""The sentences of the document on attention alone, and a table per precision and quantity, as the course has them."""

from collections.abc import Callable, Iterable, Iterator

import pandas as pd

from cs336_model.program.variants.values import EAGER, FP32, TF32
from cs336_model.program.without_times import AS_TF32, FAILED, UNSUPPORTED, WRONG
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, interval, known, memory, percent, significant, with_spread
from profile_grid.questions.attention_sweep.table import KEY_COLUMNS
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.tables.cells import Part, status_word
from profile_grid.tables.evidence import FASTER, SPREADS, fastest, ratio_verdicts
from profile_grid.tables.measured import Measured
from profile_grid.tables.pivoting import pivoted
from profile_grid.tables.wording import NO_WINNER, Claim, listed, of_all, pytorch_reason, winners

TIMES = ("bench_forward", "bench_backward", "bench_both", "forward", "backward")
CELL = [
    *(f"{name}{suffix}" for name in TIMES for suffix in ("_ms", "_std_ms")),
    "bench_both_of_peak", "memory_before_backward_bytes", "status",
]  # fmt: skip
TITLES = {  # by the column that must have values
    "bench_forward_ms": "Forward pass, single calls, ms",
    "bench_backward_ms": "Backward pass, single calls, ms",
    "bench_both_ms": "Forward and backward pass, single calls, ms",
    "bench_both_of_peak": "Share of the peak FLOP/s, forward and backward pass, single calls",
    "forward_ms": "Forward pass with the wait for the device, ms",
    "backward_ms": "Backward pass with the wait for the device, ms",
    "memory_before_backward_bytes": "Memory in use before the backward pass",
}
MAX_NAMED = 3
WAITS_ARE_UNKNOWN = True  # nothing tells where the host paces an operator: the larger difference is assumed
REASONS = (("Not supported here", (UNSUPPORTED,)), ("Wrong, or failed", (WRONG, FAILED)))


def sentences(measured: Measured) -> list[str]:
    """The largest speed-up; by precision the fastest variant and its memory; the cells without results."""
    table = measured.tables["attention_sweep"]
    done = table[table["status"] == COMPLETE]
    if done.empty:
        return [Claim("Not answered: no cell was measured.", "missing")]
    both = done.assign(ms=done["bench_both_ms"].fillna(done["forward_ms"] + done["backward_ms"]))
    gains = _gains(both)
    if gains.empty:
        return [Claim("One variant was measured, so there is nothing to compare it with; its times are below.")]
    first = [_largest(gains), _faster(gains), *_peaks(done), *_not_right(table)]
    return [*first, *_fastest(both), *_memory(table), *_refused(table), *_compiling(table)]


def _gains(both: pd.DataFrame) -> pd.DataFrame:
    """The measured cells of all variants but the written-out one: times of both passes together, and the verdict."""
    base = both.loc[both["variant"] == EAGER, [*KEY_COLUMNS, "ms"]].rename(columns={"ms": "base_ms"})
    pairs = both[both["variant"] != EAGER].merge(base, on=KEY_COLUMNS)
    gain = pairs["base_ms"] / pairs["ms"]
    error = pd.Series(SPREADS[True] * 2**0.5, index=pairs.index)  # nothing tells where the host paces an operator
    return pairs.assign(gain=gain, verdict=ratio_verdicts(gain, error)["verdict"])


def _largest(gains: pd.DataFrame) -> Claim:
    """The largest speed-up at the longest context, and the median of all."""
    longest = gains[gains["context_length"] == gains["context_length"].max()]
    row = longest.loc[longest["gain"].idxmax()]
    return Claim(
        "In {precision} at context {context}, head size {d}, {variant} is {gain} times as fast as eager attention"
        " ({ms} instead of {base} ms for both passes).", "difference",
        precision=row["precision"], context=row["context_length"], d=row["head_dim"], variant=escaped(row["variant"]),
        gain=significant(row["gain"]), ms=significant(row["ms"]), base=significant(row["base_ms"]),
    )  # fmt: skip


def _faster(gains: pd.DataFrame) -> Claim:
    """How many combinations of variant and sizes are faster than eager attention."""
    faster = int((gains["verdict"] == FASTER).sum())
    text = "Faster than eager attention: {faster} of variant, precision, head size and context."
    return Claim(text, "difference", faster=of_all(faster, len(gains), "combination"))


def _peaks(done: pd.DataFrame) -> Iterator[Claim]:
    """By precision the largest shares of the GPU's peak that variants reach; the tables have all."""
    known_peak, of_precisions = done[done["bench_both_of_peak"].notna()], []
    for precision, cells in known_peak.groupby("precision", sort=False):
        best = cells.loc[cells.groupby("variant", sort=False)["bench_both_of_peak"].idxmax()]
        texts = [
            f"{escaped(row['variant'])} {percent(row['bench_both_of_peak'])}"
            for row in best.nlargest(MAX_NAMED, "bench_both_of_peak").to_dict("records")
        ]
        of_precisions.append(f"in {precision} {listed(texts)}")
    if of_precisions:
        text = "Largest shares of the peak FLOP/s, forward and backward pass: {texts}."
        yield Claim(text, texts="; ".join(of_precisions))


def _fastest(both: pd.DataFrame) -> list[Claim]:
    """By precision the variant with the shortest passes at the longest and at the shortest context."""
    texts = []
    for precision, cells in both.groupby("precision", sort=False):
        cells, at_lengths = cells[cells.groupby(KEY_COLUMNS)["variant"].transform("nunique") > 1], []
        for length in sorted({*cells["context_length"].agg(["min", "max"])}) if len(cells) else ():
            at_length = cells[cells["context_length"] == length]
            names = [_fastest_of(cell) for _, cell in at_length.groupby(KEY_COLUMNS)]
            at_lengths.append(f"at context {length} {winners(names, 'head size')}")
        texts += [f"Clearly fastest in {precision}: {'; '.join(at_lengths)}."] if at_lengths else []
    return [Claim("{texts}", "difference", texts=" ".join(texts))] if texts else []


def _fastest_of(cell: pd.DataFrame) -> str:
    best = fastest(cell["ms"], pd.DataFrame({"spread": SPREADS[True], "processes": 1.0}, cell.index))
    return NO_WINNER if best is None else escaped(cell.loc[best, "variant"])


def _memory(table: pd.DataFrame) -> Iterator[Claim]:
    """What runs out of memory, and what is in use before the backward pass at the longest context."""
    if texts := _from_lengths(table, OUT_OF_MEMORY):
        yield Claim("Out of memory: {texts}.", "counted", texts=listed(texts))
    recorded = table[table["memory_before_backward_bytes"].notna()]
    longest = recorded[recorded["context_length"] == recorded["context_length"].max()]
    of_precisions = []
    for precision, cells in longest.groupby("precision", sort=False):
        most = cells.groupby("variant", sort=False)["memory_before_backward_bytes"].max().sort_values(kind="stable")
        texts = [f"{escaped(variant)} {memory(used)}" for variant, used in most.items()]
        of_precisions.append(f"in {precision} {listed(texts)}")
    if of_precisions:
        text = "Largest memory in use before the backward pass at context {context}: {texts}."
        yield Claim(text, context=longest["context_length"].iloc[0], texts="; ".join(of_precisions))


def _from_lengths(table: pd.DataFrame, status: str) -> list[str]:
    """The shortest context with this status, of each variant and precision that has any, in words."""
    cells = table[table["status"] == status]
    shortest = cells.groupby(["variant", "precision"], sort=False)["context_length"].min()
    return [
        f"{escaped(variant)} in {precision} from context {length}" for (variant, precision), length in shortest.items()
    ]


def _refused(table: pd.DataFrame) -> list[Claim]:
    """The variants that PyTorch refuses; their reasons are below the tables."""
    refused = table[table["status"] == UNSUPPORTED][["variant", "precision"]].drop_duplicates()
    texts = [f"{escaped(variant)} in {precision}" for variant, precision in refused.itertuples(index=False)]
    text = "Not supported here: {texts}; the reasons are below the tables."
    return [Claim(text, "missing", texts=listed(texts))] if texts else []


def _not_right(table: pd.DataFrame) -> Iterator[Claim]:
    """A student's code that is wrong, fails, or computes with the accuracy of TF32."""
    for status in (WRONG, FAILED):
        if texts := _from_lengths(table, status):
            text = "{status}: {texts}; the reasons are below the tables."
            yield Claim(text, "missing", status=status.capitalize(), texts=listed(texts))
    inexact = list(dict.fromkeys(table.loc[table["verdict"] == AS_TF32, "variant"]))
    if inexact:
        text = "In {fp32}, {texts} is only as exact as products in {tf32}: compare its times with those in {tf32}."
        yield Claim(text, fp32=FP32, tf32=TF32, texts=listed([escaped(name) for name in inexact]))


def _compiling(table: pd.DataFrame) -> Iterator[Claim]:
    seconds = table["compile_s"].dropna()
    if len(seconds):
        yield Claim("Compiling a cell takes {seconds} s with an empty cache.", seconds=interval(seconds, significant))


def tables(measured: Measured) -> list[Part]:
    """By precision and quantity: a line per head size and context length, a column per variant; then why cells have no
    times, each reason once."""
    table = measured.tables["attention_sweep"]
    parts: list[Part] = [
        (f"{title}, in {precision}", _table(cells, TEXT_OF_CELL[name]))
        for precision, cells in table.groupby("precision", sort=False)
        for name, title in TITLES.items()
        if cells[name].notna().any() or name in ALWAYS_SHOWN
    ]
    for heading, statuses in REASONS:
        reasons = table.loc[table["status"].isin(statuses), "reason"].dropna()
        texts = dict.fromkeys(f"- {escaped(pytorch_reason(reason))}" for reason in reasons)
        parts += ["\n".join([f"{heading}:\n", *texts])] if texts else []
    return parts


def most_passes(machines: Iterable[Measured]) -> int:
    """The number of measured passes of a complete cell."""
    return max((int(count) for machine in machines for count in machine.tables["attention_sweep"]["passes"]), default=0)


def batches(machines: Iterable[Measured]) -> str:
    """The batch sizes of all cells: "4", "1 or 4"."""
    sizes = {size for machine in machines for size in machine.tables["attention_sweep"]["batch_size"]}
    return " or ".join(str(size) for size in sorted(sizes))


def methods(machines: Iterable[Measured]) -> list[str]:
    """How single calls were timed; [] if none was."""
    names = (name for machine in machines for name in machine.tables["attention_sweep"]["bench_method"].dropna())
    return list(dict.fromkeys(names))


def _table(cells: pd.DataFrame, text: Callable[[pd.Series], str]) -> MarkdownTable:
    variants = list(dict.fromkeys(cells["variant"]))
    wide = pivoted(cells, KEY_COLUMNS, "variant", CELL)
    several = cells["batch_size"].nunique() > 1
    lines = []
    for key_values in sorted(wide.index):
        values = dict(zip(KEY_COLUMNS, key_values, strict=True))
        leading = (str(values[key]) for key in ("head_dim", "context_length", *(["batch_size"] if several else [])))
        cell_values = wide.loc[key_values]
        texts = (text(pd.Series({name: cell_values[(name, variant)] for name in CELL})) for variant in variants)
        lines.append((*leading, *texts))
    headings = ("head size", "context", *(["batch"] if several else []), *(escaped(variant) for variant in variants))
    return MarkdownTable(headings, tuple(lines), first_right=0)


def _cell_of(name: str, text: Callable[[pd.Series], str]) -> Callable[[pd.Series], str]:
    """The text of a cell that has a value in this column, else its status."""

    def text_or_status(cell: pd.Series) -> str:
        if cell["status"] == COMPLETE:
            return text(cell) if known(cell[name]) else ABSENT
        return status_word(cell["status"]) if known(cell["status"]) else ABSENT

    return text_or_status


def _time_cell(name: str) -> Callable[[pd.Series], str]:
    return _cell_of(f"{name}_ms", lambda cell: with_spread(cell[f"{name}_ms"], cell[f"{name}_std_ms"]))


ALWAYS_SHOWN = ("forward_ms", "backward_ms")
TEXT_OF_CELL = {f"{name}_ms": _time_cell(name) for name in TIMES} | {
    name: _cell_of(name, lambda cell, name=name, text=text: text(cell[name]))
    for name, text in (("bench_both_of_peak", percent), ("memory_before_backward_bytes", memory))
}
