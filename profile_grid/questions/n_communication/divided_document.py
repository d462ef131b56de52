"""What the document of (n) says of divided state and parameters: sentences, and columns of tables."""

from collections.abc import Iterator

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import ABSENT, count, known, memory, significant
from profile_grid.questions.n_communication.divided import CATEGORY_NAMES, PEAK_BEFORE, column_of
from profile_grid.stages.memory.usage_tables import BEFORE_OPTIMIZER
from profile_grid.study.dimensions import CONTEXT_LENGTH, GPUS, MODE, MODEL, OPTIMIZER, PARALLEL, keys_without
from profile_grid.tables.names import BACKWARD, FORWARD
from profile_grid.tables.wording import Claim, capital, config_in_words

LEADING_KEYS = (MODEL.key, CONTEXT_LENGTH.key, MODE.key, GPUS.key, PARALLEL.key)


def memory_claims(table: pd.DataFrame) -> list[Claim]:
    """The least and the most memory that the fullest rank needs before the optimizer, of the first runs on several GPUs
    that do the same work; [] without two."""
    step = table[(table["moment"] == BEFORE_OPTIMIZER) & (table["at"] == PEAK_BEFORE) & (table[GPUS.key] > 1)]
    keys = keys_without(PARALLEL.key, OPTIMIZER.key)
    fullest_ranks = step.loc[step.groupby("run", sort=False)["all_bytes"].idxmax()] if len(step) else step
    for _, cell in fullest_ranks.groupby(keys, sort=False):
        if len(cell) > 1:
            least, largest = cell.loc[cell["all_bytes"].idxmin()], cell.loc[cell["all_bytes"].idxmax()]
            text = (
                "In {place}, the rank with the highest peak before the optimizer needs {least} {low}, and {largest}"
                " {high}."
            )
            low, high = (config_in_words(row[[PARALLEL.key, OPTIMIZER.key]]) for row in (least, largest))
            sizes = {"least": memory(least["all_bytes"]), "largest": memory(largest["all_bytes"])}
            return [Claim(text, "counted", place=config_in_words(least[keys]), low=low, high=high, **sizes)]
    return []


def gathers_claims(table: pd.DataFrame) -> Iterator[Claim]:
    """By run, in how many blocks an all-gather was late in any step, and how late; `parallel` names a single run."""
    runs = table.groupby("run", sort=False)
    for _, rows in runs:
        late = {name: rows[(rows["pass"] == name) & (rows["late"] > 0)] for name in (FORWARD, BACKWARD)}
        layers, again = ((rows["pass"] == name).sum() for name in (FORWARD, BACKWARD))
        text = (
            "{place}, computation waits for the parameters of {forward} of {layers} blocks in the forward pass, and of"
            " {backward} of {again} in the backward pass{recomputed}: {ms} ms of a captured step."
        )
        numbers = {"forward": len(late[FORWARD]), "backward": len(late[BACKWARD]), "layers": layers, "again": again}
        numbers["recomputed"] = ", where recomputed ones count twice" if again > layers else ""
        first = rows.iloc[0]
        place = f"In {config_in_words(first)}" if runs.ngroups > 1 else capital(PARALLEL.words(first[PARALLEL.key]))
        yield Claim(text, place=place, ms=significant(rows["mean_ms"].sum()), **numbers)


def megabytes(size_bytes: float) -> str:
    """A size in MB, without the unit."""
    return significant(size_bytes / 1e6) if known(size_bytes) else ABSENT


MEMORY = (
    ("rank", lambda row: count(row["rank"])),
    ("moment", lambda row: row["moment"]),
    ("when", lambda row: row["at"]),
    *((name, lambda row, name=name: memory(row[column_of(name)])) for name in (*CATEGORY_NAMES, "all")),
)
VOLUME = (
    ("operation", lambda row: escaped(row["operation"])),
    ("calls per step", lambda row: count(row["per_step"])),
    ("MB per step", lambda row: megabytes(row["bytes"])),
    ("on each link of a ring, MB", lambda row: megabytes(row["sent_bytes"])),
)
GATHERS = (
    ("pass", lambda row: row["pass"]),
    ("block", lambda row: count(row["layer"])),
    ("in time", lambda row: f"{count(row['steps'] - row['late'])} of {count(row['steps'])}"),
    ("late, ms", lambda row: significant(row["mean_ms"])),
    ("latest, ms", lambda row: significant(row["max_ms"])),
)
