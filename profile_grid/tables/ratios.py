"""Speed-ups: ratios of two runs that differ in one dimension alone, with their spread."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from profile_grid.study.dimensions import Dimension, keys_without


def beside_base(
    rows: pd.DataFrame, dimension: Dimension, figure: str, spread: str, by: Sequence[str] = ()
) -> pd.DataFrame:
    """Each row that is not at the dimension's default, beside the one that is and agrees in all other dimensions and in
    `by`; rows without a figure, or without such a partner, are left out.

    Columns added: base_run, base_`figure`, base_`spread`; speed_up = base ÷ own figure; speed_up_std, from the
    relative spreads of both, which are of processes of their own. Raises MergeError where a row has two partners.
    """
    measured = rows[rows[figure].notna()]
    at_base = measured[dimension.key] == dimension.default
    place = [*keys_without(dimension.key), *by]
    base = measured.loc[at_base, ["run", *place, figure, spread]]
    base = base.rename(columns={name: f"base_{name}" for name in ("run", figure, spread)})
    both = measured[~at_base].merge(base, on=place, how="inner", validate="many_to_one")
    ratio = both[f"base_{figure}"] / both[figure]
    relative = (both[spread] / both[figure]) ** 2 + (both[f"base_{spread}"] / both[f"base_{figure}"]) ** 2
    return both.assign(speed_up=ratio, speed_up_std=ratio * relative**0.5)


BESIDE_BASE = """
    base_run | | the run at the default that differs in nothing else
    speed_up | | time of that run ÷ time of this one
    speed_up_std | | its standard deviation, from those of both
"""
