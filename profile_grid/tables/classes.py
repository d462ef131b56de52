"""Kernel classes and their families: which are matrix multiplies, and the share of each family."""

import pandas as pd

from kernel_tables.kernel_classes.categories import family
from kernel_tables.markdown import escaped
from profile_grid.study.dimensions import LEADING
from profile_grid.tables.pivoting import unstacked

MATMUL = "gemm"
MEMORY_OPERATIONS = ("memcpy", "memset")
NON_TRIVIAL_SHARE = 0.01  # of the GPU time: families below it share one column


def heading(name: str) -> str:
    """A family as the heading of a column; "attention" alone would be the dimension."""
    return "fused attention" if name == "attention" else escaped(name)


def is_matmul(classes: pd.Series) -> pd.Series:
    """Which of these classes are matrix multiplies."""
    return classes.map(family) == MATMUL


def family_shares(classes: pd.DataFrame) -> pd.DataFrame:
    """The `share` of each run and family, from the shares of classes; 0 for a family that a run lacks."""
    shares = (
        classes.assign(family=classes["class"].map(family)).groupby([*LEADING, "family"], sort=False)["share"].sum()
    )
    if shares.empty:
        return pd.DataFrame(columns=[*LEADING, "family", "share"])
    wide = unstacked(shares, "family", fill_value=0.0)  # a family may have the name of a key: the keys stay the index
    return wide.melt(ignore_index=False, var_name="family", value_name="share").reset_index()
