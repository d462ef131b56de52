"""What the document of (h) says: sentences and tables."""

from collections.abc import Callable, Iterable

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, counted, interval, known, memory, ratio, significant
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.study.dimensions import ATTENTION, CONTEXT_LENGTH, keys_without
from profile_grid.tables import evidence, gains, pivoting
from profile_grid.tables.cells import Part, lines_table, rows_table, status_word, text_or_status
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import NO_WINNER, Claim, listed, runs_in_words, winners

COUNTS_HEADING = "compared with eager attention"
NO_ANSWER = Claim("Not answered: no timed run differs from another only in attention.", "missing")
KEY_COLUMNS = keys_without(ATTENTION.key)  # identify a configuration, which is a line of the tables


def sentences(measured: Measured) -> list[Claim]:
    """(h) The largest speed-up; the fastest attention by context length; memory; counts of faster runs; operator."""
    rows = measured.tables["attention_times"]
    steps = gains.whole_steps(rows)
    if not (steps["status"] == COMPLETE).any():
        return [NO_ANSWER]
    times = steps[steps["speed_up"].notna()]
    claims = [*_fastest(steps), *_memory(steps), *_refused(steps)]
    if len(times):
        # modes=(): of the steps of all modes, not only of those of the fullest
        lead = gains.largest_gain(times, ATTENTION, base=ATTENTION.words(ATTENTION.default), modes=())
        claims = [lead, *claims, gains.verdict_counts(times, COUNTS_HEADING)]
    return [*claims, *_operator(measured.tables["attention_operator"], measured)]


def _fastest(steps: pd.DataFrame) -> list[Claim]:
    """By context length, in how many rows of the table each attention is clearly the fastest."""
    texts = []
    for context, timed in steps[steps["mean_ms"].notna()].groupby(CONTEXT_LENGTH.key, sort=False):
        names = [_fastest_of(rivals) for _, rivals in timed.groupby(KEY_COLUMNS, sort=False)]
        texts.append(f"at context {context} {winners(names, 'row')}")
    return [Claim("Rows of the table with a clearly fastest attention: {texts}.", "difference", texts="; ".join(texts))]


def _fastest_of(rivals: pd.DataFrame) -> str:
    """In the rows of one configuration, the attention that is faster than every other one, by more than the spread
    between processes explains; else NO_WINNER."""
    spreads = rivals[["process_spread", "timed_processes"]].set_axis(["spread", "processes"], axis=1)
    best = evidence.fastest(rivals["mean_ms"], spreads.astype("float64"))
    return NO_WINNER if best is None else str(rivals.loc[best, ATTENTION.key])


def _operator(rows: pd.DataFrame, measured: Measured) -> list[Claim]:
    """The median speed-up of the operator alone with each attention."""
    texts = [
        f"{ratio(rows.loc[rows[ATTENTION.key] == value, 'speed_up'].median())} with {value}"
        for value in pivoting.sorted_values(rows, ATTENTION.key)
    ]
    text = "Median speed-up of attention alone (without projections), by {time} of the forward pass: {texts}."
    return [Claim(text, time=measured.words.time, texts=listed(texts))] if texts else []


def _memory(steps: pd.DataFrame) -> list[Claim]:
    """With which attentions memory runs out, and in which configurations; those of the same configurations share a
    sentence. Then the attentions with which memory suffices in all configurations where others fail, and its peak."""
    failed, complete = (steps[steps["status"] == status] for status in (OUT_OF_MEMORY, COMPLETE))
    if failed.empty:
        return [Claim("No run exhausts the memory.", "counted")] if len(complete) == len(steps) else []
    names_by_configurations: dict[tuple, list[str]] = {}  # a configuration: its values of KEY_COLUMNS
    for name in pivoting.sorted_values(failed, ATTENTION.key):
        configurations = failed.loc[failed[ATTENTION.key] == name, KEY_COLUMNS].itertuples(index=False, name=None)
        names_by_configurations.setdefault(tuple(configurations), []).append(str(name))
    texts = []
    for configurations, names in names_by_configurations.items():
        runs = runs_in_words(pd.DataFrame(configurations, columns=KEY_COLUMNS))
        texts.append(f"With {listed(names)} attention, memory runs out in {runs}.")
    failing = failed[KEY_COLUMNS].drop_duplicates()
    fitting = complete.merge(failing, on=KEY_COLUMNS)
    fitting = fitting[fitting.groupby(ATTENTION.key)["run"].transform("size") == len(failing)]  # that fit in all these
    fitting_names, sizes = pivoting.sorted_values(fitting, ATTENTION.key), fitting["peak_allocated_bytes"].dropna()
    peaks = f" ({interval(sizes, memory)})" if len(sizes) else ""
    texts += [f"With {listed(fitting_names)} attention, it suffices there{peaks}."] if fitting_names else []
    return [Claim("{texts}", "counted", texts=" ".join(texts))]


def _refused(steps: pd.DataFrame) -> list[Claim]:
    """The attentions that PyTorch refuses, and in how many runs."""
    refused = steps[steps["status"] == UNSUPPORTED]
    texts = [
        f"{escaped(value)} in {counted(len(rows), 'run')}" for value, rows in refused.groupby(ATTENTION.key, sort=False)
    ]
    return [Claim("PyTorch refuses {texts} (see *Not measured*).", "missing", texts=listed(texts))] if texts else []


def tables(measured: Measured) -> list[Part]:
    """(h) Two tables with a column per attention: the time of a step with its speed-up, or why there is none; and the
    peak memory of tensors, which is not measured on a CPU. A third table, with a line per run, compares its operator
    with that of eager attention."""
    known_peaks = measured.tables["attention_times"]["peak_allocated_bytes"].notna().any()
    operator, keys = measured.tables["attention_operator"], (*gains.LEADING_KEYS, ATTENTION.key)
    return [
        ("A step without a profiler, ms, in brackets how many times as fast as with eager attention",
         _attentions_table(measured, _time)),
        ("Peak memory of tensors", _attentions_table(measured, _peak) if known_peaks else None),
        (f"{measured.words.time} of attention alone (without projections), all layers of a forward pass",
         rows_table(operator, keys, OPERATOR_COLUMNS)),
    ]  # fmt: skip


OPERATOR_COLUMNS = (
    ("eager, ms", lambda row: significant(row["base_gpu_time_ms"])),
    ("this attention, ms", lambda row: significant(row["gpu_time_ms"])),
    ("times as fast", lambda row: ratio(row["speed_up"], row["speed_up_std"])),
    ("limit by arithmetic", lambda row: ratio(row["ideal_by_flops"])),  # both: the largest possible speed-up
    ("limit by memory", lambda row: ratio(row["ideal_by_bytes"])),
)


def _attentions_table(measured: Measured, cell_text: Callable[[dict], str]) -> MarkdownTable:
    """One line per configuration, a column per attention with the text of its row."""
    rows = gains.whole_steps(measured.tables["attention_times"])
    values = pivoting.sorted_values(rows, ATTENTION.key)
    wide = pivoting.pivoted_texts(rows, KEY_COLUMNS, ATTENTION.key, cell_text)

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
