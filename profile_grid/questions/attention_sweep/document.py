"""The sentences of the document on attention alone, and a table per precision and quantity, as the course has them."""

from collections.abc import Callable, Iterable, Iterator

import pandas as pd

from cs336_model.program.without_times import FAILED, UNSUPPORTED
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, interval, known, memory, percent, significant, with_spread
from profile_grid.questions.attention_sweep.table import KEY_COLUMNS, pairs_with_eager
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.tables.cells import Part, text_or_status
from profile_grid.tables.evidence import FASTER, HOST_BOUND_SPREAD, fastest, ratio_verdicts
from profile_grid.tables.measured import Measured
from profile_grid.tables.pivoting import pivoted_texts
from profile_grid.tables.wording import NO_WINNER, Claim, listed, of_all, pytorch_reason, winners


def _time_of(name: str) -> Callable[[dict], str]:
    return lambda cell: with_spread(cell[f"{name}_ms"], cell[f"{name}_std_ms"])


def _used_memory(cell: dict) -> str:
    size = cell["memory_before_backward_bytes"]
    return memory(size) if known(size) else ABSENT


def _errors(cell: dict) -> str:
    return f"{_error(cell['output_error'])} / {_error(cell['gradient_error'])}"


def _error(value: float) -> str:
    """An error with two digits: errors of a precision and of a wrong result differ by orders of magnitude."""
    return f"{value:.1e}".replace("-", "−") if known(value) else ABSENT


QUANTITIES = {  # by column: the title of its tables, and a function that makes a cell's text from the cell's row
    "bench_forward_ms": ("Forward pass, single calls, ms", _time_of("bench_forward")),
    "bench_backward_ms": ("Backward pass, single calls, ms", _time_of("bench_backward")),
    "bench_both_ms": ("Forward and backward pass, single calls, ms", _time_of("bench_both")),
    "bench_both_of_peak": (
        "Share of the peak FLOP/s, forward and backward pass, single calls",
        lambda cell: percent(cell["bench_both_of_peak"]),
    ),
    "forward_ms": ("Forward pass with the wait for the device, ms", _time_of("forward")),
    "backward_ms": ("Backward pass with the wait for the device, ms", _time_of("backward")),
    "output_error": ("Error against attention in fp64: output / gradients", _errors),
    "memory_before_backward_bytes": ("Memory in use before the backward pass", _used_memory),
}
ALWAYS_SHOWN = ("forward_ms", "backward_ms")  # columns of QUANTITIES that have a table even without values
MAX_ERROR = 0.1  # more than rounding explains in any precision (docs/attention-alone.md)
MAX_VARIANTS = 3  # by precision, in the sentence on peaks
# This stage has no captures, so whether the GPU waits for the host is not known; the larger spread is assumed.
WAITS_ARE_UNKNOWN = True  # read by documents/templates/macros.md.j2
ASSUMED_SPREAD = HOST_BOUND_SPREAD
REASONS = (("Not supported here", UNSUPPORTED), ("Failed", FAILED))


def sentences(measured: Measured) -> list[Claim]:
    """The largest speed-up, shares of the peak, wrong results; the fastest, memory, refused variants, compiling."""
    table = measured.tables["attention_sweep"]
    is_complete, error = table["status"] == COMPLETE, _largest_error(table)
    complete, wrong = (table[is_complete & chosen] for chosen in (~(error > MAX_ERROR), error > MAX_ERROR))
    if complete.empty:
        return [*_wrong(wrong), Claim("Not answered: no cell was measured.", "missing")]
    both_ms = complete["bench_both_ms"].fillna(complete["forward_ms"] + complete["backward_ms"])
    timed = complete.assign(both_ms=both_ms)
    pairs = pairs_with_eager(timed)
    if pairs.empty:
        return [Claim("One variant was measured, so there is nothing to compare it with; its times are below.")]
    claims = [_largest_speed_up(pairs), _number_faster(pairs), *_shares_of_peak(complete)]
    claims += [*_wrong(wrong), *_failed(table), *_fastest(timed), *_out_of_memory(table), *_memory(table)]
    return [*claims, *_unsupported(table), *_compiling(table)]


def _largest_speed_up(pairs: pd.DataFrame) -> Claim:
    """The largest speed-up over eager attention at the longest context, clear or not."""
    longest = pairs[pairs["context_length"] == pairs["context_length"].max()]
    index = longest["gain"].idxmax()
    row = longest.loc[index]
    is_clear = _is_faster(pairs)[index]  # judged together with all cells, as in the sentence of _number_faster
    text = (
        "In {precision} at context {context}, head size {d}, {variant} is {gain} times as fast as eager attention"
        " ({ms} instead of {base} ms for both passes)"
    )
    return Claim(
        f"{text}." if is_clear else f"{text}, which is not clear.", "difference" if is_clear else "unclear",
        precision=row["precision"], context=row["context_length"], d=row["head_dim"], variant=escaped(row["variant"]),
        gain=significant(row["gain"]), ms=significant(row["both_ms"]), base=significant(row["base_both_ms"]),
    )  # fmt: skip


def _is_faster(pairs: pd.DataFrame) -> pd.Series:
    """Whether each of these cells is clearly faster than eager attention."""
    error = pd.Series(ASSUMED_SPREAD * 2**0.5, index=pairs.index)  # of a ratio of two processes
    return ratio_verdicts(pairs["gain"], error)["verdict"] == FASTER


def _number_faster(pairs: pd.DataFrame) -> Claim:
    """How many combinations of variant, precision and sizes are faster than eager attention."""
    faster = int(_is_faster(pairs).sum())
    text = "Faster than eager attention, both passes together: {faster} of variant, precision, head size and context."
    return Claim(text, "difference", faster=of_all(faster, len(pairs), "combination"))


def _shares_of_peak(complete: pd.DataFrame) -> Iterator[Claim]:
    """By precision the largest shares of the GPU's peak that variants reach; the tables have all."""
    precision_texts = []
    for precision, cells in complete.dropna(subset="bench_both_of_peak").groupby("precision", sort=False):
        best = cells.loc[cells.groupby("variant", sort=False)["bench_both_of_peak"].idxmax()]
        texts = [
            f"{escaped(row['variant'])} {percent(row['bench_both_of_peak'])}"
            for row in best.nlargest(MAX_VARIANTS, "bench_both_of_peak").to_dict("records")
        ]
        precision_texts.append(f"in {precision} {listed(texts)}")
    if precision_texts:
        text = "The largest shares of the peak FLOP/s, forward and backward pass: {texts}."
        yield Claim(text, texts="; ".join(precision_texts))


def _fastest(timed: pd.DataFrame) -> list[Claim]:
    """By precision, for the shortest and for the longest context: how often each variant is clearly the fastest."""
    compared = timed[timed.groupby(KEY_COLUMNS)["variant"].transform("nunique") > 1]
    texts = []
    for precision, cells in compared.groupby("precision", sort=False):
        lengths = cells["context_length"]
        winners_at = []
        for length in sorted({lengths.min(), lengths.max()}):
            names = [_fastest_variant(rivals) for _, rivals in cells[lengths == length].groupby(KEY_COLUMNS)]
            winners_at.append(f"at context {length} {winners(names, 'head size')}")
        texts.append(f"Clearly fastest for both passes in {precision}: {'; '.join(winners_at)}.")
    return [Claim("{texts}", "difference", texts=" ".join(texts))] if texts else []


def _fastest_variant(rivals: pd.DataFrame) -> str:
    """Of cells that differ in their variant only, the variant that is clearly faster than all others, else
    NO_WINNER."""
    best = fastest(rivals["both_ms"], pd.DataFrame({"spread": ASSUMED_SPREAD, "processes": 1.0}, rivals.index))
    return NO_WINNER if best is None else escaped(rivals.loc[best, "variant"])


def _out_of_memory(table: pd.DataFrame) -> list[Claim]:
    texts = _shortest_contexts(table, OUT_OF_MEMORY)
    return [Claim("Out of memory: {texts}.", "counted", texts=listed(texts))] if texts else []


def _memory(table: pd.DataFrame) -> Iterator[Claim]:
    """What is in use before the backward pass at the longest context."""
    recorded = table.dropna(subset="memory_before_backward_bytes")
    longest = recorded[recorded["context_length"] == recorded["context_length"].max()]
    precision_texts = []
    for precision, cells in longest.groupby("precision", sort=False):
        sizes = cells.groupby("variant", sort=False)["memory_before_backward_bytes"].max().sort_values(kind="stable")
        texts = [f"{escaped(variant)} {memory(used)}" for variant, used in sizes.items()]
        precision_texts.append(f"in {precision} {listed(texts)}")
    if precision_texts:
        text = "Memory in use before the backward pass at context {context}, at most: {texts}."
        yield Claim(text, context=longest["context_length"].iloc[0], texts="; ".join(precision_texts))


def _shortest_contexts(table: pd.DataFrame, status: str) -> list[str]:
    """In words, for each variant and precision with cells of this status, the shortest context of such a cell."""
    cells = table[table["status"] == status]
    shortest = cells.groupby(["variant", "precision"], sort=False)["context_length"].min()
    return [
        f"{escaped(variant)} in {precision} from context {length}" for (variant, precision), length in shortest.items()
    ]


def _unsupported(table: pd.DataFrame) -> list[Claim]:
    """The variants that PyTorch refuses; their reasons are below the tables."""
    refused = table[table["status"] == UNSUPPORTED][["variant", "precision"]].drop_duplicates()
    texts = [f"{escaped(variant)} in {precision}" for variant, precision in refused.itertuples(index=False)]
    text = "Not supported here: {texts}; the reasons are below the tables."
    return [Claim(text, "missing", texts=listed(texts))] if texts else []


def _largest_error(cells: pd.DataFrame) -> pd.Series:
    """The error of the output or of the gradients of each cell, whichever is larger; NaN if neither is known."""
    return cells[["output_error", "gradient_error"]].astype("float64").max(axis=1)


def _wrong(wrong: pd.DataFrame) -> list[Claim]:
    """The variants with errors above MAX_ERROR, which no other sentence is about."""
    if wrong.empty:
        return []
    text = "Wrong, so that its times do not count: {texts} (errors of up to {error}, see the tables)."
    texts = listed(_shortest_contexts(wrong, COMPLETE))
    return [Claim(text, "missing", texts=texts, error=significant(_largest_error(wrong).max(), 2))]


def _failed(table: pd.DataFrame) -> Iterator[Claim]:
    if texts := _shortest_contexts(table, FAILED):
        yield Claim("Failed: {texts}; the reasons are below the tables.", "missing", texts=listed(texts))


def _compiling(table: pd.DataFrame) -> Iterator[Claim]:
    seconds = table["compile_s"].dropna()
    if len(seconds):
        yield Claim("Compiling a cell takes {seconds} s with an empty cache.", seconds=interval(seconds, significant))


def tables(measured: Measured) -> list[Part]:
    """A table for each precision and quantity, with a line per head size and context length and a column per variant.
    Below the tables, each reason once why cells have no times."""
    table = measured.tables["attention_sweep"]
    parts: list[Part] = [
        (f"{title}, in {precision}", _variants_table(cells, cell_text))
        for precision, cells in table.groupby("precision", sort=False)
        for column, (title, cell_text) in QUANTITIES.items()
        if cells[column].notna().any() or column in ALWAYS_SHOWN
    ]
    for heading, status in REASONS:
        reasons = table.loc[table["status"] == status, "reason"].dropna()
        bullets = dict.fromkeys(f"- {escaped(pytorch_reason(reason))}" for reason in reasons)
        parts += ["\n".join([f"{heading}:\n", *bullets])] if bullets else []
    return parts


def most_passes(machines: Iterable[Measured]) -> int:
    """The largest number of measured passes of a cell; 0 without cells."""
    return max((int(count) for machine in machines for count in machine.tables["attention_sweep"]["passes"]), default=0)


def batches(machines: Iterable[Measured]) -> str:
    """The batch sizes of all cells: "4", "1 or 4"."""
    sizes = {size for machine in machines for size in machine.tables["attention_sweep"]["batch_size"]}
    return " or ".join(str(size) for size in sorted(sizes))


def methods(machines: Iterable[Measured]) -> list[str]:
    """The distinct ways in which single calls were timed; [] if none was."""
    names = (name for machine in machines for name in machine.tables["attention_sweep"]["bench_method"].dropna())
    return list(dict.fromkeys(names))


def _variants_table(cells: pd.DataFrame, cell_text: Callable[[dict], str]) -> MarkdownTable:
    """One line per head size, context length and batch size, a column per variant: the text of a complete cell, else
    its status."""
    wide = pivoted_texts(cells, KEY_COLUMNS, "variant", lambda row: text_or_status(cell_text(row), row["status"]))
    leading = {"head_dim": "head size", "context_length": "context"}
    if cells["batch_size"].nunique() > 1:
        leading["batch_size"] = "batch"
    lines = []
    for key_values in sorted(wide.index):
        values = dict(zip(KEY_COLUMNS, key_values, strict=True))
        lines.append((*(str(values[key]) for key in leading), *wide.loc[key_values]))
    return MarkdownTable((*leading.values(), *map(escaped, wide.columns)), tuple(lines), first_right=0)
