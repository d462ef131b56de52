"""The sentences of (g) on parts of the model: fused parts, and parts whose number of matrix multiplies differs."""

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import count, interval, percent
from profile_grid.tables.claims import Claim
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import parts_in
from profile_grid.tables.names import BACKWARD, FORWARD, NO_RANGE
from profile_grid.tables.wording import capital, listed, run_in_words

MAX_NAMED = 3


def fused_sentences(rows: pd.DataFrame, measured: Measured) -> list[Claim]:
    """By phase the share of time in kernels that serve several parts."""
    passes = rows[rows["phase"].isin((FORWARD, BACKWARD)) & (rows["gpu_time_ms"] > 0)]
    if passes.empty or (passes["parts"] == NO_RANGE).all():
        return []
    several = passes["share"].where(passes["parts"].map(lambda name: len(parts_in(name)) > 1), 0.0)
    shares = several.groupby([passes["run"], passes["phase"]]).sum()
    texts = [
        f"{interval(shares.xs(phase, level='phase'), percent)} of {phase}"
        for phase in (FORWARD, BACKWARD)
        if phase in set(passes["phase"])
    ]
    text = "{kernels} that serve several parts of the model at once take {texts}."
    return [Claim(text, kernels=capital(measured.words.kernels), texts=listed(texts))]


def matmuls_sentence(rows: pd.DataFrame) -> list[Claim]:
    """The parts whose number of matrix multiplies differs when compiled."""
    differing = rows[rows["matmuls"] != rows["base_matmuls"]]
    texts = [
        f"**{escaped(row['parts'])}** in {run_in_words(row)}, {row['phase']} ({count(row['base_matmuls'])} before,"
        f" {count(row['matmuls'])} after)"
        for row in differing.head(MAX_NAMED).to_dict("records")
    ]
    rest = f" and {len(differing) - MAX_NAMED} more" if len(differing) > MAX_NAMED else ""
    text = "The number of matrix multiplies differs when compiled: {named}{more}."
    return [Claim(text, "counted", named="; ".join(texts), more=rest)] if texts else []
