"""What the document of (h) says: sentences and tables."""

from collections.abc import Callable, Iterable

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, counted, interval, known, memory, ratio, significant
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.study.dimensions import ATTENTION, keys_without
from profile_grid.tables import evidence, gains, pivoting
from profile_grid.tables.cells import Part, lines_table, rows_table, status_word, text_or_status
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import NO_WINNER, Claim, listed, runs_in_words, winners

COUNTS_HEADING = "compared with eager attention"
NO_ANSWER = Claim("Not answered: no timed run differs from another only in attention.", "missing")
KEY_COLUMNS = keys_without(ATTENTION.key)


def sentences(measured: Measured) -> list[Claim]:
    """(h) The largest speed-up; the fastest attention by context length, where memory runs out, and the operator
    alone."""
    rows = measured.tables["attention_times"]
    steps = gains.whole_steps(rows)
    if not (steps["status"] == COMPLETE).any():
        return [NO_ANSWER]
    times = steps[steps["speed_up"].notna()]
    claims = [*_fastest(steps), *_memory(steps), *_refused(steps)]
    if len(times):
        lead = gains.largest_gain(times, ATTENTION, ATTENTION.words(ATTENTION.default), ())
        claims = [lead, *claims, gains.verdict_counts(times, COUNTS_HEADING)]
    return [*claims, *_operator(measured.tables["attention_operator"], measured)]


def _fastest(steps: pd.DataFrame) -> list[Claim]:
    """By context length, in how many rows of the table each attention is clearly the fastest."""
    timed = steps[steps["mean_ms"].notna()]
    groups = timed.groupby(KEY_COLUMNS, sort=False)
    fastest = [(group["context_length"].iloc[0], _fastest_of(group)) for _, group in groups]
    texts = [
        f"at context {context} {winners([name for length, name in fastest if length == context], 'row')}"
        for context in dict.fromkeys(length for length, _ in fastest)
    ]
    return [Claim("Rows of the table with a clearly fastest attention: {texts}.", "difference", texts="; ".join(texts))]


def _fastest_of(times: pd.DataFrame) -> str:
    """The attention that is faster than every other one in these rows, beyond the spread between processes, else
    NO_WINNER."""
    spreads = times[["process_spread", "timed_processes"]].set_axis(["spread", "processes"], axis=1)
    best = evidence.fastest(times["mean_ms"], spreads.astype("float64"))
    return NO_WINNER if best is None else str(times.loc[best, ATTENTION.key])


def _operator(rows: pd.DataFrame, measured: Measured) -> list[Claim]:
    """The median speed-up of the operator alone; the table has that of each run."""
    texts = [
        f"{ratio(rows.loc[rows[ATTENTION.key] == value, 'speed_up'].median())} with {value}"
        for value in pivoting.sorted_values(rows, ATTENTION.key)
    ]
    text = "Median speed-up of attention alone (without projections), by {time} of the forward pass: {texts}."
    return [Claim(text, time=measured.words.time, texts=listed(texts))] if texts else []


def _memory(steps: pd.DataFrame) -> list[Claim]:
    """The attentions with which memory runs out and the runs in which it does, together for those of the same runs; the
    attentions with which memory suffices in all of these runs, with its peak."""
    failed, complete = (steps[steps["status"] == status] for status in (OUT_OF_MEMORY, COMPLETE))
    if failed.empty:
        return [Claim("No run exhausts the memory.", "counted")] if len(complete) == len(steps) else []
    names_by_runs: dict[tuple, list[str]] = {}
    for name in pivoting.sorted_values(failed, ATTENTION.key):
        rows = failed.loc[failed[ATTENTION.key] == name, KEY_COLUMNS]
        names_by_runs.setdefault(tuple(rows.itertuples(index=False, name=None)), []).append(str(name))
    texts = [
        f"With {listed(names)} attention, memory runs out in {runs_in_words(pd.DataFrame(runs, columns=KEY_COLUMNS))}."
        for runs, names in names_by_runs.items()
    ]
    failing_runs = failed[KEY_COLUMNS].drop_duplicates()
    there = complete.merge(failing_runs, on=KEY_COLUMNS)
    fitting = there[there.groupby(ATTENTION.key)["run"].transform("size") == len(failing_runs)]
    fits, sizes = pivoting.sorted_values(fitting, ATTENTION.key), fitting["peak_allocated_bytes"].dropna()
    peaks = f" ({interval(sizes, memory)})" if len(sizes) else ""
    texts += [f"With {listed(fits)} attention, it suffices there{peaks}."] if fits else []
    return [Claim("{texts}", "counted", texts=" ".join(texts))]


def _refused(steps: pd.DataFrame) -> list[Claim]:
    """The attention that PyTorch refuses, and in how many runs."""
    refused = steps[steps["status"] == UNSUPPORTED]
    texts = [
        f"{escaped(value)} in {counted(len(rows), 'run')}" for value, rows in refused.groupby(ATTENTION.key, sort=False)
    ]
    return [Claim("PyTorch refuses {texts} (see *Not measured*).", "missing", texts=listed(texts))] if texts else []


def tables(measured: Measured) -> list[Part]:
    """(h) Two tables with a column per attention: the step and its speed-up, or why there is none, and the peak memory
    of tensors, which is not measured on a CPU. A table with a line per run: its operator and that of eager
    attention."""
    known_peaks = measured.tables["attention_times"]["peak_allocated_bytes"].notna().any()
    operator, keys = measured.tables["attention_operator"], (*gains.LEADING_KEYS, ATTENTION.key)
    return [
        ("A step without a profiler, ms, in brackets how many times as fast as with eager attention",
         _by_attention(measured, _time)),
        ("Peak memory of tensors", _by_attention(measured, _peak) if known_peaks else None),
        (f"{measured.words.time} of attention alone (without projections), all layers of a forward pass",
         rows_table(operator, keys, OPERATOR_COLUMNS)),
    ]  # fmt: skip


OPERATOR_COLUMNS = (
    ("eager, ms", lambda row: significant(row["base_gpu_time_ms"])),
    ("this attention, ms", lambda row: significant(row["gpu_time_ms"])),
    ("times as fast", lambda row: ratio(row["speed_up"], row["speed_up_std"])),
    ("limit by arithmetic", lambda row: ratio(row["ideal_by_flops"])),
    ("limit by memory", lambda row: ratio(row["ideal_by_bytes"])),
)


def _by_attention(measured: Measured, text: Callable[[dict], str]) -> MarkdownTable:
    """One line per configuration, a column per attention with the text of its row."""
    rows = gains.whole_steps(measured.tables["attention_times"])
    values = pivoting.sorted_values(rows, ATTENTION.key)
    wide = pivoting.pivoted_texts(rows, KEY_COLUMNS, ATTENTION.key, text)

    def cells(row: dict) -> Iterable[str]:
        return wide.loc[tuple(row[key] for key in KEY_COLUMNS), values]

    headings = [str(value) for value in values]
    lines = rows.drop_duplicates(KEY_COLUMNS)
    return lines_table(lines, gains.LEADING_KEYS, headings, cells, hidden=(ATTENTION.key,))


def _time(row: dict) -> str:
    if not known(row["mean_ms"]):
        return status_word(row["status"])
    if not known(row["speed_up"]):
        return significant(row["mean_ms"])
    return gains.time_and_gain(row["mean_ms"], row["speed_up"], row["verdict"])


def _peak(row: dict) -> str:
    peak = row["peak_allocated_bytes"]
    return text_or_status(memory(peak) if known(peak) else ABSENT, row["status"])
