"""Integer keys numbered without gaps. Pure numpy."""

from __future__ import annotations

import numpy as np


def compact(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys, ascending, and the index of each key among them; without a sort where the keys are dense."""
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = int(keys.min()), int(keys.max())
    if high - low > 4 * len(keys) + 1024:
        distinct, inverse = np.unique(keys, return_inverse=True)
        return distinct, inverse.reshape(-1)
    present = np.zeros(high - low + 1, bool)
    present[keys - low] = True
    distinct = np.flatnonzero(present)
    code = np.empty(high - low + 1, np.int64)
    code[distinct] = np.arange(len(distinct))
    return distinct + low, code[keys - low]
