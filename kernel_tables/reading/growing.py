"""A column of numbers that grows while it is read, in memory that goes back to the system when it is freed."""

import numpy as np
import pyarrow as pa

from kernel_tables.reading.schema import MISSING

FIRST_LENGTH = 65536


class GrowingColumn:
    """Integers in order of arrival, MISSING for NULL."""

    def __init__(self) -> None:
        self._values = np.empty(FIRST_LENGTH, np.int64)
        self._length = 0

    def append(self, values: pa.Array) -> None:
        """Appends integers or NULLs."""
        end = self._length + len(values)
        if end > len(self._values):
            self._values.resize(2 * end, refcheck=False)  # remapped, not copied, where the system can
        known = values.fill_null(MISSING) if values.null_count else values
        self._values[self._length : end] = known.to_numpy()
        self._length = end

    def values(self) -> np.ndarray:
        """All integers. Nothing can be appended afterwards."""
        self._values.resize(self._length, refcheck=False)
        return self._values
