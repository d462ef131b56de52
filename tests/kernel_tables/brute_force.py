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


def chains(path: Path, tables: tuple[str, ...] = TABLES, replays: bool = True) -> list[tuple[int, list[Range] | None]]:
    """(duration, ranges) of every activity; without REPLAYS those that were open at its launch alone."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    ranges = _ranges(connection, present)
    calls = {}
    if "CUPTI_ACTIVITY_KIND_RUNTIME" in present:
        query = "SELECT start, globalTid, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
        for start, thread, correlation in connection.execute(query):
            key = (thread >> 24, correlation)
            calls[key] = min(calls.get(key, (start, thread)), (start, thread))
    found, nodes = [], []
    for table in tables:
        if table in present:
            columns = {name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})")}
            node = "graphNodeId" if "graphNodeId" in columns else "NULL"
            for start, end, process, correlation, number in connection.execute(
                f'SELECT start, "end", globalPid, correlationId, {node} FROM {table}'
            ):
                call = calls.get((process >> 24, correlation))
                found.append((end - start, None if call is None else chain_at(ranges, *call)))
                nodes.append((call and (process >> 24, *call), (process >> 24, number)))
    if replays and calls and "CUDA_GRAPH_NODE_EVENTS" in present:
        captured = _captured(connection, ranges, nodes)
        found = [
            (ns, chain if chain is None else chain + more) for (ns, chain), more in zip(found, captured, strict=True)
        ]
    connection.close()
    return found


def _captured(connection: sqlite3.Connection, ranges: list[Range], nodes: list[tuple]) -> list[list[Range]]:
    """The captured ranges of each activity, below those of its launch, from (its launch, (process, node))."""
    created, original = {}, {}
    for start, thread, node, cloned in connection.execute(
        "SELECT start, globalTid, graphNodeId, originalGraphNodeId FROM CUDA_GRAPH_NODE_EVENTS ORDER BY start"
    ):
        if cloned is None and start >= 0:
            created.setdefault((thread >> 24, node), (start, thread))
        elif cloned is not None:
            original.setdefault((thread >> 24, node), (thread >> 24, cloned))
    marks = {}
    for which in ("Begin", "End"):
        query = (
            "SELECT start, globalTid >> 24 FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE nameId IN"
            f" (SELECT id FROM StringIds WHERE value LIKE 'cudaStream{which}Capture%')"
        )
        marks[which] = connection.execute(query).fetchall()
    creations, first = [], {}
    for launch, node in nodes:
        while node in original:
            node = original[node]
        creations.append(created.get(node) if launch else None)
        if creations[-1] and (launch not in first or creations[-1][0] < first[launch][0]):
            first[launch] = creations[-1]
    return [
        captured_below(ranges, marks, launch, creation, first[launch]) if creation else []
        for (launch, _), creation in zip(nodes, creations, strict=True)
    ]


def captured_below(ranges: list[Range], marks: dict, launch: tuple, creation: tuple, first: tuple) -> list[Range]:
    """The ranges at a CREATION below those at the LAUNCH of a replay whose FIRST node was created then."""
    process, at_launch = launch[0], chain_at(ranges, *launch[1:])
    begins, ends = (
        sorted(time for time, its in marks[which] if its == process and time <= first[0]) for which in ("Begin", "End")
    )
    began = begins[-1] if len(begins) > len(ends) else first[0]
    names = {r.name for r in at_launch}
    around = [r.order() for r in chain_at(ranges, *first) if r.start < began and r.name in names]
    captured = [r for r in chain_at(ranges, *creation) if not around or r.order() > max(around)]
    names, opened = [r.name for r in captured], [r.name for r in at_launch]
    if not names or names[0] not in opened:
        return captured
    first, count = len(opened) - 1 - opened[::-1].index(names[0]), 1
    while count < min(len(names), len(opened) - first) and names[count] == opened[first + count]:
        count += 1
    return captured[count:]


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
