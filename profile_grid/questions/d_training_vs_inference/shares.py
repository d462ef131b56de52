"""The shares that (d) compares: of kernel families in inference and in training, and by phase."""

import pandas as pd

from profile_grid.study.dimensions import LEADING, MODE, keys_without
from profile_grid.tables.classes import MATMUL, family, family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, FORWARD, MAIN_PHASES
from profile_grid.tables.pivoting import pivoted


def training_change(measured: Measured) -> pd.DataFrame:
    """Per configuration (all dimensions but the mode) and family: its share in inference, in training, and the change,
    as fractions."""
    keys = keys_without(MODE.key)
    columns = [*keys, "family", "inference", "training", "change"]
    shares = measured.tables["class_shares"]
    step_shares = family_shares(shares[shares["phase"] == ALL_PHASES])
    if measured.training_mode is None or measured.inference_mode != FORWARD or step_shares.empty:
        return pd.DataFrame(columns=columns)
    wide = pivoted(step_shares, [*keys, "family"], "mode", ["share"])["share"]
    if not {measured.inference_mode, measured.training_mode} <= set(wide.columns):
        return pd.DataFrame(columns=columns)
    both = wide.rename(columns={measured.inference_mode: "inference", measured.training_mode: "training"}).reset_index()
    both = both.dropna(subset=["inference", "training"])
    return both.assign(change=both["training"] - both["inference"])[columns]


def matmul_change(measured: Measured) -> pd.DataFrame:
    """The rows of training_change that are matrix multiplies."""
    change = training_change(measured)
    return change[change["family"] == MATMUL]


def phase_shares(measured: Measured) -> pd.DataFrame:
    """Per run of the training mode and phase: its share of the step (`of_step`), and the share of matrix multiplies in
    it (`matmul`)."""
    rows = measured.mode("class_shares", measured.training_mode or "")
    rows = rows[rows["phase"] != ALL_PHASES]
    rows = rows.assign(matmul=rows["share"].where(rows["class"].map(family) == MATMUL, 0.0))
    table = rows.groupby([*LEADING, "phase"], sort=False)[["share_of_step", "matmul"]].sum().reset_index()
    order = {phase: i for i, phase in enumerate(MAIN_PHASES)}
    table = table.rename(columns={"share_of_step": "of_step"})
    return table.sort_values("phase", key=lambda phases: phases.map(order).fillna(len(order)), kind="stable")
