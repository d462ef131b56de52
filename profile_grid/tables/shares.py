"""Shares of kernel families by run: what the sentences and the tables of (c) and (d) have in common."""

from __future__ import annotations

import pandas as pd

from profile_grid.tables.measured import MAIN_PHASES, Measured
from profile_grid.tables.summary import ALL_PHASES, MATMUL, RUN_KEYS, family

NON_TRIVIAL_SHARE = 0.01
CONFIGURATION = ["model", "context_length"]


def family_shares(classes: pd.DataFrame, by: tuple[str, ...] = ()) -> pd.DataFrame:
    """One row per run, `by` and family of classes with its `share`; a family that a run lacks has the share 0."""
    keys = [*RUN_KEYS, *by]
    wide = classes.assign(family=classes["class"].map(family)).pivot_table(
        index=keys, columns="family", values="share", aggfunc="sum", fill_value=0.0, sort=False
    )
    return wide.reset_index().melt(id_vars=keys, var_name="family", value_name="share") if len(wide) else _empty(keys)


def others_share(of: Measured) -> pd.DataFrame:
    """Per run of the inference mode the share of the forward pass's GPU time that is no matrix multiply."""
    classes = of.inference("forward_classes")
    is_other = classes["class"].map(family) != MATMUL
    shares = classes.assign(share=classes["share"].where(is_other, 0.0)).groupby(RUN_KEYS, sort=False)["share"].sum()
    return shares.reset_index()


def training_change(of: Measured) -> pd.DataFrame:
    """Per model, context and family: its share in inference, in training, and the change (of one, not percent)."""
    columns = [*CONFIGURATION, "family", "inference", "training", "change"]
    shares = of.tables["class_shares"]
    whole = family_shares(shares[shares["phase"] == ALL_PHASES])
    if of.training_mode is None or of.inference_mode != "forward" or whole.empty:
        return pd.DataFrame(columns=columns)
    wide = whole.pivot_table(index=[*CONFIGURATION, "family"], columns="mode", values="share", sort=False)
    if not {of.inference_mode, of.training_mode} <= set(wide.columns):
        return pd.DataFrame(columns=columns)
    both = wide.rename(columns={of.inference_mode: "inference", of.training_mode: "training"}).reset_index()
    both = both.dropna(subset=["inference", "training"])
    return both.assign(change=both["training"] - both["inference"])[columns]


def matmul_change(of: Measured) -> pd.DataFrame:
    """The rows of training_change that are matrix multiplies."""
    change = training_change(of)
    return change[change["family"] == MATMUL]


def phase_shares(of: Measured) -> pd.DataFrame:
    """Per run of the training mode and phase: its share of the step (`of_step`), and `matmul`, the share of matrix
    multiplies in the phase."""
    rows = of.mode("class_shares", of.training_mode or "")
    rows = rows[rows["phase"] != ALL_PHASES]
    rows = rows.assign(matmul=rows["share"].where(rows["class"].map(family) == MATMUL, 0.0))
    table = rows.groupby([*RUN_KEYS, "phase"], sort=False)[["share_of_step", "matmul"]].sum().reset_index()
    order = {phase: i for i, phase in enumerate(MAIN_PHASES)}
    table = table.rename(columns={"share_of_step": "of_step"})
    return table.sort_values("phase", key=lambda phases: phases.map(order).fillna(len(order)), kind="stable")


def _empty(keys: list[str]) -> pd.DataFrame:
    return pd.DataFrame(columns=[*keys, "family", "share"])
