"""Impossible times, which no clock and no capture can have."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.errors import ERROR, Finding

NEVER_NS = 1 << 62  # 146 years; the difference of two times before that fits in a 64-bit integer
LARGEST_SUM_NS = NEVER_NS >> 3  # of the times of one table; so the sum over the few tables fits into 64 bits, too
CONSEQUENCE = "the figures would be wrong; the file is damaged: export the report again, or capture again"


@dataclass(frozen=True)
class Bounds:
    """The end of a capture on its own clock, and its length; NEVER_NS if it states none."""

    last_ns: int = NEVER_NS
    length_ns: int = NEVER_NS


class TimeCheck:
    """The check of the columns `start` and `end` of a table (or only `start`) for impossible times, batch by batch."""

    def __init__(self, table: str, bounds: Bounds, may_be_open: bool):
        """With `may_be_open`, an end may be missing."""
        self._table, self._bounds, self._may_be_open = table, bounds, may_be_open
        self._missing_count = 0
        self._extents: dict[str, tuple[int, int]] = {}  # (least, greatest) value, by "start", "end" and "length"
        self._backwards_count = 0
        self._total_ns = 0.0

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Checks the times of further rows, which are integers."""
        columns = {name: batch[name] for name in ("start", "end") if name in batch.schema.names}
        for name, values in columns.items():
            self._missing_count += 0 if self._may_be_open and name == "end" else values.null_count
            self._widen_to(name, _without_nulls(values))
        if len(columns) == 2 and not any(self._out_of_bounds()):  # else a difference may not fit in 64 bits
            length = _without_nulls(pc.subtract(columns["end"], columns["start"]))
            self._widen_to("length", length)
            self._backwards_count += np.count_nonzero(length < 0)
            self._total_ns += float(length.sum(dtype=np.float64))

    def _widen_to(self, name: str, values: np.ndarray) -> None:
        if len(values):
            least, greatest = int(values.min()), int(values.max())
            least_before, greatest_before = self._extents.get(name, (least, greatest))
            self._extents[name] = min(least_before, least), max(greatest_before, greatest)

    def extend(self, other: "TimeCheck") -> None:
        """Adds the rows that another check has looked at."""
        self._missing_count += other._missing_count
        self._backwards_count += other._backwards_count
        self._total_ns += other._total_ns
        for name, extent in other._extents.items():
            self._widen_to(name, np.array(extent))

    def findings(self) -> list[Finding]:
        """What is impossible so far; wrong lengths only if every start and end is possible."""
        findings = list(self._out_of_bounds())
        if self._missing_count:
            findings.insert(0, _finding("no_time", f"{self._missing_count} times of {self._table} are missing"))
        return findings or list(self._wrong_lengths())

    def _out_of_bounds(self) -> Iterator[Finding]:
        last_ns = self._bounds.last_ns
        for name in ("start", "end"):
            least, greatest = self._extent(name)
            if least < 0:
                yield _finding("negative_time", f"{self._table} has {name} times below zero, the first {least} ns")
            if greatest > last_ns:
                ended = "no capture lasts so long" if last_ns == NEVER_NS else f"the capture ended at {last_ns} ns"
                yield _finding("outside_capture", f"{self._table} has {name} times up to {greatest} ns, and {ended}")

    def _wrong_lengths(self) -> Iterator[Finding]:
        (least, greatest), limit_ns = self._extent("length"), self._bounds.length_ns
        if least < 0:
            yield _finding("ends_before_start", f"{self._backwards_count} rows of {self._table} end before they start")
        if greatest > limit_ns:
            yield _finding(
                "longer_than_capture", f"{self._table} has a row of {greatest} ns in a capture of {limit_ns} ns"
            )
        elif self._total_ns > LARGEST_SUM_NS:
            yield _finding("times_overflow", f"the times of {self._table} add up to more than a 64-bit integer holds")

    def _extent(self, name: str) -> tuple[int, int]:
        """The least and the greatest value of a column so far; 0 without values."""
        return self._extents.get(name, (0, 0))


def _without_nulls(values: pa.Array) -> np.ndarray:
    return (values.drop_null() if values.null_count else values).to_numpy()


def _finding(code: str, fact: str) -> Finding:
    return Finding(ERROR, code, f"{fact}: {CONSEQUENCE}")
