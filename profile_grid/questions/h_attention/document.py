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
from profile_grid.tables.wording import NO_WINNER, PASSES, Claim, capital, configs_in_words, listed, winners

VARIANTS = "compared with eager attention"
NO_ANSWER = Claim("Not answered: no two runs differ only in attention, with times of at least one.", "missing")
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
        claims = [lead, *claims, gains.verdict_counts(times, VARIANTS)]
    return [*claims, *_operator(measured.tables["attention_operator"], measured)]


def _fastest(steps: pd.DataFrame) -> list[Claim]:
    """The fastest attention by context length, with the number of configurations; in how many there is no clear
    winner."""
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
    between = times[["process_spread", "timed_processes"]].set_axis(["spread", "processes"], axis=1)
    best = evidence.fastest(times["mean_ms"], between.astype("float64"))
    return NO_WINNER if best is None else str(times.loc[best, ATTENTION.key])


def _operator(rows: pd.DataFrame, measured: Measured) -> list[Claim]:
    """The median speed-up of the operator alone; the table has that of each run."""
    texts = [
        f"{ratio(rows.loc[rows[ATTENTION.key] == value, 'speed_up'].median())} with {value}"
        for value in pivoting.sorted_values(rows, ATTENTION.key)
    ]
    text = "Median speed-up of only the attention operator, by {time} of the forward pass: {texts}."
    return [Claim(text, time=measured.words.time, texts=listed(texts))] if texts else []


def _memory(steps: pd.DataFrame) -> list[Claim]:
    """Where memory runs out with each attention, and which attention still fits there, with its memory."""
    failed = steps[steps["status"] == OUT_OF_MEMORY]
    if failed.empty:
        return [Claim("All of them fit into memory.", "counted")] if (steps["status"] == COMPLETE).all() else []
    names = pivoting.sorted_values(failed, ATTENTION.key)
    fitting = steps[steps["status"] == COMPLETE].merge(failed[KEY_COLUMNS].drop_duplicates(), on=KEY_COLUMNS)
    fits = pivoting.sorted_values(fitting, ATTENTION.key)
    sizes = fitting["peak_allocated_bytes"].dropna()
    sizes_text = f" ({interval(sizes, memory)})" if len(sizes) else ""
    also = f"; with {listed(fits)}, memory suffices{sizes_text}" if fits else ""
    cells = failed.assign(**{ATTENTION.key: ATTENTION.default})
    text = "{step} of {where} runs out of memory with {names} attention{also}."
    step = capital(listed([PASSES[mode] for mode in dict.fromkeys(failed["mode"])]))
    return [Claim(text, "counted", step=step, names=listed(names), where=configs_in_words(cells, most=2), also=also)]


def _refused(steps: pd.DataFrame) -> list[Claim]:
    """The attention that PyTorch refuses, and in how many runs."""
    refused = steps[steps["status"] == UNSUPPORTED]
    texts = [
        f"{escaped(value)} in {counted(len(rows), 'run')}" for value, rows in refused.groupby(ATTENTION.key, sort=False)
    ]
    return [Claim("PyTorch refuses {texts} (see *Not measured*).", "missing", texts=listed(texts))] if texts else []


def tables(measured: Measured) -> list[Part]:
    """(h) A column per attention: the step and its speed-up, or why there is none; the peak memory of tensors, which
    is not measured on a CPU; the operator of all layers in a forward pass, and the written-out one."""
    known_peaks = measured.tables["attention_times"]["peak_allocated_bytes"].notna().any()
    operator, keys = measured.tables["attention_operator"], (*gains.LEADING_KEYS, ATTENTION.key)
    return [
        ("A step without a profiler, ms, in brackets how many times as fast as with eager attention",
         _by_attention(measured, _time)),
        ("Peak memory of tensors", _by_attention(measured, _peak) if known_peaks else None),
        (f"{measured.words.time} of only the attention operator, all layers of a forward pass",
         rows_table(operator, keys, OPERATOR)),
    ]  # fmt: skip


OPERATOR = (
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
