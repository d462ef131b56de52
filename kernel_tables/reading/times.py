"""Times that cannot be: what no clock and no capture gives."""

from __future__ import annotations

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


def wrong_times(table: str, rows: pa.Table, bounds: Bounds, may_be_open: bool = False) -> list[Finding]:
    """What cannot be of the columns `start` and `end`, or `start` alone; an end may be lacking where MAY_BE_OPEN."""
    findings = [
        *_no_time(table, rows, may_be_open),
        *(finding for column in _times(rows) for finding in _beyond(table, column, rows[column], bounds)),
    ]
    return findings if findings or "end" not in rows.column_names else list(_wrong_lengths(table, rows, bounds))


def _no_time(table: str, rows: pa.Table, may_be_open: bool) -> Iterator[Finding]:
    lacking = sum(rows[column].null_count for column in _times(rows) if not (may_be_open and column == "end"))
    if lacking:
        yield _finding("no_time", f"{lacking} times of {table} are missing")


def _beyond(table: str, name: str, times: pa.ChunkedArray, bounds: Bounds) -> Iterator[Finding]:
    least, greatest = pc.min_max(times).as_py().values()
    if least is not None and least < 0:
        yield _finding("negative_time", f"{table} has {name} times below zero, the first {least} ns")
    if greatest is not None and greatest > bounds.last_ns:
        ended = (
            "no capture lasts so long" if bounds.last_ns == NEVER_NS else f"the capture ended at {bounds.last_ns} ns"
        )
        yield _finding("outside_capture", f"{table} has {name} times up to {greatest} ns, and {ended}")


def _wrong_lengths(table: str, rows: pa.Table, bounds: Bounds) -> Iterator[Finding]:
    length = pc.subtract(rows["end"], rows["start"])
    least, greatest = pc.min_max(length).as_py().values()
    if least is not None and least < 0:
        backwards = pc.sum(pc.less(length, 0)).as_py()
        yield _finding("ends_before_start", f"{backwards} rows of {table} end before they start")
    if greatest is not None and greatest > bounds.length_ns:
        yield _finding(
            "longer_than_capture", f"{table} has a row of {greatest} ns in a capture of {bounds.length_ns} ns"
        )
    elif greatest is not None and pc.sum(length.cast("float64", safe=False)).as_py() > LARGEST_SUM_NS:
        yield _finding("times_overflow", f"the times of {table} add up to more than a 64-bit integer holds")


def _times(rows: pa.Table) -> list[str]:
    return [name for name in ("start", "end") if name in rows.column_names]


def _finding(code: str, fact: str) -> Finding:
    return Finding(ERROR, code, f"{fact}: {AGAIN}")
