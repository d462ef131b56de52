"""What the document of (n) says of divided state and parameters: sentences, and columns of tables."""

from collections.abc import Iterator

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import ABSENT, count, known, memory, percent, significant
from profile_grid.questions.n_communication.divided import PEAK_BEFORE
from profile_grid.stages.memory.usage_tables import BEFORE_OPTIMIZER, CATEGORY_COLUMNS
from profile_grid.study.dimensions import CONTEXT_LENGTH, GPUS, MODE, MODEL, PARALLEL, keys_without
from profile_grid.tables import per_pass
from profile_grid.tables.names import BACKWARD, FORWARD
from profile_grid.tables.wording import Claim, capital, config_in_words

LEADING_KEYS = (MODEL.key, CONTEXT_LENGTH.key, MODE.key, GPUS.key, PARALLEL.key)
MIN_NAMED_SHARE = 0.5  # of the time that a run waits for parameters: a block with more is named


def memory_claims(table: pd.DataFrame) -> list[Claim]:
    """The peak before the optimizer of the rank that needs most, in the run with the lowest and in the run with the
    highest such peak, of the first runs on several GPUs that do the same work; [] without two such runs."""
    peaks = table[(table["moment"] == BEFORE_OPTIMIZER) & (table["at"] == PEAK_BEFORE) & (table[GPUS.key] > 1)]
    fullest_ranks = per_pass.largest_by_run(peaks, "all_bytes").sort_index()
    keys = keys_without(PARALLEL.key)
    same_work = [rows for _, rows in fullest_ranks.groupby(keys, sort=False) if len(rows) > 1]
    if not same_work:
        return []
    lowest, highest = (same_work[0].loc[index] for index in same_work[0]["all_bytes"].agg(["idxmin", "idxmax"]))
    low, high = (PARALLEL.words(row[PARALLEL.key]) for row in (lowest, highest))
    return [
        Claim(
            "In {place}, the rank with the highest peak before the optimizer needs {least} {low}, and {largest}"
            " {high}.",
            "counted", place=config_in_words(lowest[keys]), low=low, high=high, least=memory(lowest["all_bytes"]),
            largest=memory(highest["all_bytes"]),
        )
    ]  # fmt: skip


def gathers_claims(table: pd.DataFrame) -> Iterator[Claim]:
    """By run: for how many blocks an all-gather was late in any step, and how late. If there is only one run, it is
    named by its way of dividing the parameters alone."""
    runs = table.groupby("run", sort=False)
    for _, rows in runs:
        forward, backward = (rows[rows["pass"] == name] for name in (FORWARD, BACKWARD))
        first, late, mostly = rows.iloc[0], rows[rows["late"] > 0], ""
        if len(late) > 1:
            longest = late.loc[late["mean_ms"].idxmax()]
            share = longest["mean_ms"] / rows["mean_ms"].sum()
            if share > MIN_NAMED_SHARE:
                mostly = f", {percent(share)} of it for block {longest['layer']} in the {longest['pass']} pass"
        place = f"In {config_in_words(first)}" if runs.ngroups > 1 else capital(PARALLEL.words(first[PARALLEL.key]))
        yield Claim(
            "{place}, computation waits for the parameters of {forward} of {layers} blocks in the forward pass, and of"
            " {backward} of {again} in the backward pass{recomputed}: {ms} ms of a captured step{mostly}.",
            place=place, ms=significant(rows["mean_ms"].sum()),
            forward=(forward["late"] > 0).sum(), backward=(backward["late"] > 0).sum(),
            layers=len(forward), again=len(backward),
            recomputed=", where recomputed ones count twice" if len(backward) > len(forward) else "",
            mostly=mostly,
        )  # fmt: skip


def megabytes(size_bytes: float) -> str:
    """A size in MB, without the unit."""
    return significant(size_bytes / 1e6) if known(size_bytes) else ABSENT


MEMORY_COLUMNS = (
    ("rank", lambda row: count(row["rank"])),
    ("moment", lambda row: row["moment"]),
    ("when", lambda row: row["at"]),
    *((name, lambda row, column=column: memory(row[column])) for name, column in CATEGORY_COLUMNS.items()),
    ("all", lambda row: memory(row["all_bytes"])),
)
VOLUME_COLUMNS = (
    ("operation", lambda row: escaped(row["operation"])),
    ("calls per step", lambda row: count(row["per_step"])),
    ("MB per step", lambda row: megabytes(row["bytes"])),
)
GATHER_COLUMNS = (
    ("pass", lambda row: row["pass"]),
    ("block", lambda row: count(row["layer"])),
    ("in time", lambda row: f"{count(row['steps'] - row['late'])} of {count(row['steps'])}"),
    ("late, ms", lambda row: significant(row["mean_ms"])),
    ("latest, ms", lambda row: significant(row["max_ms"])),
)
