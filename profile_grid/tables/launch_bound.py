"""The definition of launch-bound for all documents."""

import pandas as pd

from kernel_tables.diagnosis.host_rules import IDLE_SHARE

LAUNCH_BOUND_SHARE = IDLE_SHARE  # of a step in which the GPU idles; the line of the diagnosis, too


def is_launch_bound(idle_share: pd.Series, launch_us: pd.Series, kernel_us: pd.Series) -> pd.Series:
    """Whether the GPU idles for LAUNCH_BOUND_SHARE of a step and launching a kernel takes longer than running it."""
    return (idle_share >= LAUNCH_BOUND_SHARE) & (launch_us > kernel_us)
