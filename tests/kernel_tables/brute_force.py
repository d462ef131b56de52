"""The rule of attribution written out, one launch at a time; slow, and nothing shared with the package."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Range:
    start: int
    end: int
    thread: int
    row: int
    name: str

    def order(self) -> tuple:
        return (self.start, -self.end, self.thread, self.row)


def paths(path: Path) -> list[tuple[str, ...] | None]:
    """The range path of every kernel, memcpy, memset and graph, in the order of the tables; None without a launch."""
    return [None if chain is None else tuple(r.name for r in chain) for _, chain in chains(path)]


def ranges_table(path: Path, under: str | None = None) -> dict[str, tuple[int, int]]:
    """(kernels, ns) by range name; only kernels, and only ranges inside UNDER."""
    totals = defaultdict(lambda: (0, 0))
    for duration, chain in chains(path, ("CUPTI_ACTIVITY_KIND_KERNEL",)):
        names = [] if chain is None else [r.name for r in chain]
        if under is not None:
            names = names[names.index(under) :] if under in names else []
        for name in set(names):
            totals[name] = (totals[name][0] + 1, totals[name][1] + duration)
    return dict(totals)


TABLES = tuple(f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE"))


def chains(path: Path, tables: tuple[str, ...] = TABLES) -> list[tuple[int, list[Range] | None]]:
    """(duration, ranges) of every activity."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    ranges = _ranges(connection, present)
    calls = {}
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in present:
        query = "SELECT start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        for start, thread, correlation in connection.execute(query):
            key = (thread >> 24, correlation)
            calls[key] = min(calls.get(key, (start, thread)), (start, thread))
    found = []
    for table in tables:
        if table in present:
            for start, end, process, correlation in connection.execute(
                f'SELECT start, "end", globalPid, correlationId FROM {table}'
            ):
                call = calls.get((process >> 24, correlation))
                found.append((end - start, None if call is None else chain_at(ranges, *call)))
    connection.close()
    return found


def chain_at(ranges: list[Range], time: int, thread: int) -> list[Range]:
    """The ranges of a launch: inherited first, then the thread's own."""
    process = [r for r in ranges if r.thread >> 24 == thread >> 24]
    own = sorted((r for r in process if r.thread == thread and r.start <= time < r.end), key=Range.order)
    others = [r for r in process if r.thread != thread]
    if own:
        o = own[0]
        inherited = [
            r for r in others if r.start <= o.start and o.end <= r.end and (r.start, r.end) != (o.start, o.end)
        ]
    else:
        inherited = [r for r in others if r.start <= time < r.end]
    return sorted(inherited, key=Range.order) + own


def _ranges(connection: sqlite3.Connection, present: set[str]) -> list[Range]:
    if "NVTX_EVENTS" not in present:
        return []
    strings = dict(connection.execute("SELECT id, value FROM StringIds")) if "StringIds" in present else {}
    last = max(
        connection.execute(f'SELECT max(ifnull("end", start)) FROM {table}').fetchone()[0] or 0
        for table in (*TABLES, "NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME")
        if table in present
    )
    rows = connection.execute(
        'SELECT start, "end", globalTid, text, textId FROM NVTX_EVENTS WHERE eventType IN (59, 60) ORDER BY rowid'
    )
    return [
        Range(start, last if end is None else end, thread, row, strings[text_id] if text is None else text)
        for row, (start, end, thread, text, text_id) in enumerate(rows)
    ]
