"""The sentences of (g) on parts of the model: which are fused, and whether their matrix multiplies are all there."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import count, interval, percent
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import parts_in
from profile_grid.tables.names import BACKWARD, FORWARD, NO_RANGE
from profile_grid.tables.wording import capital, leaders, listed, run_in_words

MOST_NAMED = 3


def fused_sentences(rows: pd.DataFrame, measured: Measured) -> list[str]:
    """By phase how much of the time is in kernels that serve several parts, and the set of parts with most of it."""
    own = rows[rows["phase"].isin((FORWARD, BACKWARD)) & (rows["gpu_time_ms"] > 0)]
    if own.empty or (own["parts"] == NO_RANGE).all():
        return []
    several = own[own["parts"].map(lambda name: len(parts_in(name)) > 1)]
    if several.empty:
        return [f"No {measured.words.kernel} serves several parts of the model at once."]
    phases = [phase for phase in (FORWARD, BACKWARD) if phase in set(several["phase"])]
    told = [_of_phase(phase, several[several["phase"] == phase], own) for phase in phases]
    words = measured.words
    return [f"{capital(words.kernels)} that serve several parts of the model at once take {listed(told)}."]


def _of_phase(phase: str, several: pd.DataFrame, own: pd.DataFrame) -> str:
    """The share of a phase's time that is fused over parts, and the set that has most of it."""
    runs = own.loc[own["phase"] == phase, "run"].unique()
    share = several.groupby("run")["share"].sum().reindex(runs, fill_value=0.0)
    first = several.sort_values("gpu_time_ms", ascending=False, kind="stable").drop_duplicates("run")
    most = leaders([f"**{escaped(parts)}**" for parts in first["parts"]])
    return f"{interval(share, percent)} of {phase} (most of it for {most})"


def matmuls_sentence(rows: pd.DataFrame) -> list[str]:
    """Whether every part has as many matrix multiplies compiled as not, and which have not."""
    if not rows["base_matmuls"].any():
        return []
    differing = rows[rows["matmuls"] != rows["base_matmuls"]]
    if differing.empty:
        return ["Every part of the model has as many matrix multiplies compiled as not compiled."]
    named = [
        f"**{escaped(row['parts'])}** in {run_in_words(row)}, {row['phase']} ({count(row['base_matmuls'])} before,"
        f" {count(row['matmuls'])} after)"
        for row in differing.head(MOST_NAMED).to_dict("records")
    ]
    more = f" and {len(differing) - MOST_NAMED} more" if len(differing) > MOST_NAMED else ""
    return [f"Not as many matrix multiplies compiled as not compiled: {'; '.join(named)}{more}."]
