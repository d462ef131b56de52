"""Sums that keep NaN, which pandas would leave out."""

from collections.abc import Sequence

import pandas as pd


def known_sums(rows: pd.DataFrame, by: Sequence[str], columns: Sequence[str], sort: bool = True) -> pd.DataFrame:
    """The sums of these columns by these keys, NaN if any term is NaN."""
    keys, columns = [rows[name] for name in by], list(columns)
    sums = rows.groupby(keys, sort=sort, observed=True)[columns].sum()
    return sums.mask(rows[columns].isna().groupby(keys, sort=sort, observed=True).any())
