"""Impossible times, which no clock and no capture can have."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from kernel_tables.errors import ERROR, Finding

NEVER_NS = 1 << 62  # 146 years; the difference of two times before that fits in a 64-bit integer
LARGEST_SUM_NS = NEVER_NS >> 3  # of a table; the sums over the few tables fit then, too
AGAIN = "the figures would be wrong; the file is damaged: export the report again, or capture again"


@dataclass(frozen=True)
class Bounds:
    """The end of a capture on its own clock, and its length."""

    last_ns: int = NEVER_NS
    length_ns: int = NEVER_NS


class Times:
    """Impossible values in the columns `start` and `end` of a table (or only `start`), checked batch by batch."""

    def __init__(self, table: str, bounds: Bounds, may_be_open: bool):
        """With `may_be_open`, an end may be missing."""
        self._table, self._bounds, self._may_be_open = table, bounds, may_be_open
        self._lacking = 0
        self._extremes: defaultdict[str, list[int]] = defaultdict(
            list
        )  # by column, and of `length`: those of each batch
        self._backwards = 0
        self._total_ns = 0.0

    def look_at(self, batch: pa.RecordBatch) -> None:
        """Checks the times of further rows, which are integers."""
        columns = [name for name in ("start", "end") if name in batch.schema.names]
        for name in columns:
            self._lacking += 0 if self._may_be_open and name == "end" else batch[name].null_count
            self._note(name, batch[name])
        if len(columns) == 2 and not any(self._beyond()):
            length = pc.subtract(batch["end"], batch["start"])
            self._note("length", length)
            self._backwards += pc.sum(pc.less(length, 0)).as_py() or 0
            self._total_ns += pc.sum(length.cast("float64", safe=False)).as_py() or 0.0

    def _note(self, name: str, values: pa.Array) -> None:
        self._extremes[name] += [value for value in pc.min_max(values).as_py().values() if value is not None]

    def add(self, other: "Times") -> None:
        """Adds the times that another one has looked at."""
        self._lacking += other._lacking
        self._backwards += other._backwards
        self._total_ns += other._total_ns
        for name, extremes in other._extremes.items():
            self._extremes[name] += extremes

    def findings(self) -> list[Finding]:
        """The impossibilities so far."""
        problems = [*self._beyond()]
        if self._lacking:
            problems.insert(0, _finding("no_time", f"{self._lacking} times of {self._table} are missing"))
        return problems or list(self._wrong_lengths())

    def _beyond(self) -> Iterator[Finding]:
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
            yield _finding("ends_before_start", f"{self._backwards} rows of {self._table} end before they start")
        if greatest > limit_ns:
            yield _finding(
                "longer_than_capture", f"{self._table} has a row of {greatest} ns in a capture of {limit_ns} ns"
            )
        elif self._total_ns > LARGEST_SUM_NS:
            yield _finding("times_overflow", f"the times of {self._table} add up to more than a 64-bit integer holds")

    def _extent(self, name: str) -> tuple[int, int]:
        """The least and the greatest value of a column so far; 0 without values."""
        extremes = self._extremes[name]
        return min(extremes, default=0), max(extremes, default=0)


def _finding(code: str, fact: str) -> Finding:
    return Finding(ERROR, code, f"{fact}: {AGAIN}")
