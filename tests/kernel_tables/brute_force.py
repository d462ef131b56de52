"""The rule of attribution written out, one launch at a time; slow, and nothing shared with the package.

Rows come from an SQLite export, or of a trace from the arrays of its capture.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

BEFORE_CAPTURE = ("(launched before the capture)",)
KERNEL, MEMCPY, MEMSET, GRAPH, CALL = (
    f"CUPTI_ACTIVITY_KIND_{kind}" for kind in ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE", "RUNTIME")
)


@dataclass(frozen=True)
class Range:
    start: int
    end: int
    thread: int
    row: int
    name: str

    def order(self) -> tuple:
        return (self.start, -self.end, self.thread, self.row)


@dataclass
class Rows:
    """What the rule needs of a capture. An activity is (ns, process, correlation, graph node or None, is a memory
    operation), a call (start, thread, correlation, name), a node (time, thread, node, original or None)."""

    ranges: list[Range]
    calls: list[tuple]
    activities: list[tuple]
    nodes: list[tuple]
    _chains: dict[tuple[int, int], list[Range]] = field(default_factory=dict)

    @classmethod
    def of_export(cls, path: Path) -> Rows:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:

            def rows(table: str, *columns: str, where: str = "true") -> list[tuple]:
                known = {name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")}
                listed = ", ".join(f'"{column}"' if column in known else "NULL" for column in columns)
                return database.execute(f"SELECT {listed} FROM {table} WHERE {where}").fetchall() if known else []

            strings = dict(rows("StringIds", "id", "value"))
            calls = rows(CALL, "start", "globalTid", "correlationId", "nameId")
            activities = [
                (end - start, process, correlation, node, table in (MEMCPY, MEMSET))
                for table in (KERNEL, MEMCPY, MEMSET, GRAPH)
                for start, end, *ids in rows(table, "start", "end", "globalPid", "correlationId", "graphNodeId")
                for process, correlation, node in [ids]
            ]
            bounds = [rows(table, "start", "end") for table in (KERNEL, MEMCPY, MEMSET, GRAPH, CALL, "NVTX_EVENTS")]
            last = max((time or 0 for table in bounds for row in table for time in row), default=0)
            wanted = ("start", "end", "globalTid", "domainId", "text", "textId")
            events = rows("NVTX_EVENTS", *wanted, where="eventType IN (59, 60)")
            made = rows("NVTX_EVENTS", "globalTid", "domainId", "text", "textId", where="eventType = 75")
            libraries = {
                (thread >> 24, domain)
                for thread, domain, text, i in made
                if (strings.get(i) if text is None else text) in ("CCCL", "NCCL")
            }
            named = [
                (strings[i] if text is None else text, start, end, thread)
                for start, end, thread, domain, text, i in events
                if (thread >> 24, domain) not in libraries
            ]
            ranges = [  # of ranges with equal times on a thread, the order of their names decides
                Range(start, last if end is None else end, thread, row, name)
                for row, (name, start, end, thread) in enumerate(sorted(named, key=lambda one: one[0]))
            ]
            nodes = rows("CUDA_GRAPH_NODE_EVENTS", "start", "globalTid", "graphNodeId", "originalGraphNodeId")
            return cls(ranges, [(*call, strings.get(name)) for *call, name in calls], activities, nodes)

    @classmethod
    def of_capture(cls, capture) -> Rows:
        def lists(table, *columns: str) -> list[list]:
            return [getattr(table, column).tolist() for column in columns]

        ranges = zip(*lists(capture.ranges, "start", "end", "thread", "name"), strict=True)
        work, calls = capture.activities, capture.calls
        activities = zip(*lists(work, "start", "end", "process", "correlation", "node", "kind"), strict=True)
        made = zip(*lists(calls, "start", "thread", "correlation", "name"), strict=True)
        nodes = zip(*lists(capture.nodes, "time", "thread", "node", "original"), strict=True)
        return cls(
            [Range(a, b, thread, row, capture.ranges.names[name]) for row, (a, b, thread, name) in enumerate(ranges)],
            [(at, int(calls.threads[thread]), number, calls.names.get(name)) for at, thread, number, name in made],
            [(b - a, pid, number, None if n < 0 else n, kind in (1, 2)) for a, b, pid, number, n, kind in activities],
            [(time, thread, node, None if original < 0 else original) for time, thread, node, original in nodes],
        )

    @cached_property
    def launches(self) -> list[tuple[int, int] | None]:
        """The time and the thread of the call of each activity."""
        earliest: dict[tuple, tuple[int, int]] = {}
        for start, thread, correlation, _ in self.calls:
            if correlation > 0:
                key = (thread >> 24, correlation)
                earliest[key] = min(earliest.get(key, (start, thread)), (start, thread))
        return [earliest.get((process >> 24, correlation)) for _, process, correlation, *_ in self.activities]

    def at_launch(self) -> list[list[Range] | None]:
        """The ranges that are open at the launch of each activity, None without a launch."""
        return [None if launch is None else self.chain_at(*launch) for launch in self.launches]

    def paths(self) -> list[tuple[str, ...]]:
        """The range path of each activity."""
        chains = zip(self.at_launch(), self._captured(), strict=True)
        return [BEFORE_CAPTURE if chain is None else tuple(r.name for r in chain + more) for chain, more in chains]

    def instances(self) -> list[tuple[str, ...]]:
        """The path of each range, and of the captured ranges once in each replay and chain."""
        found = []
        for one in self.ranges:
            process = [r for r in self.ranges if r.thread >> 24 == one.thread >> 24 and r.start <= one.start < r.end]
            own = sorted((r for r in process if r.thread == one.thread and r.order() < one.order()), key=Range.order)
            found.append(
                (*(r.name for r in self._inherited(process, (own or [one])[0])), *(r.name for r in own), one.name)
            )
        replayed = set()
        rows = zip(self.activities, self.launches, self.at_launch(), self._captured(), strict=True)
        for (_, process, *_), launch, chain, captured in rows:
            replayed |= {(process, launch, *chain, *captured[:count]) for count in range(1, len(captured) + 1)}
        return found + [tuple(r.name for r in of_replay[2:]) for of_replay in replayed]

    def chain_at(self, time: int, thread: int) -> list[Range]:
        """The ranges of a launch: inherited first, then the thread's own."""
        if (time, thread) not in self._chains:
            process = [r for r in self.ranges if r.thread >> 24 == thread >> 24]
            own = sorted((r for r in process if r.thread == thread and r.start <= time < r.end), key=Range.order)
            others = [r for r in process if r.thread != thread]
            inherited = sorted((r for r in others if r.start <= time < r.end), key=Range.order)
            self._chains[time, thread] = (self._inherited(others, own[0]) if own else inherited) + own
        return self._chains[time, thread]

    def _inherited(self, ranges: list[Range], outermost: Range) -> list[Range]:
        """The ranges of other threads that enclose the outermost range of a thread."""
        first, last = outermost.start, outermost.end
        others = (r for r in ranges if r.thread != outermost.thread and (r.start, r.end) != (first, last))
        return sorted((r for r in others if r.start <= first and last <= r.end), key=Range.order)

    def _captured(self) -> list[list[Range]]:
        """The captured ranges of each activity, below those of its launch."""
        created, original = {}, {}
        for time, thread, node, source in sorted(self.nodes, key=lambda node: node[0]):
            if source is not None:
                original.setdefault((thread >> 24, node), (thread >> 24, source))
            elif time >= 0:
                created.setdefault((thread >> 24, node), (time, thread))
        creations, first = [], {}
        for (_, process, _, node, _), launch in zip(self.activities, self.launches, strict=True):
            key = (process >> 24, node)
            for _ in range(100):
                key = original.get(key, key)
            creation = created.get(key) if launch and node is not None else None
            creations.append(creation)
            replay = (process, launch)
            if creation and (replay not in first or creation[0] < first[replay][0]):
                first[replay] = creation
        return [
            self._captured_below(launch, creation, first[activity[1], launch]) if creation else []
            for activity, launch, creation in zip(self.activities, self.launches, creations, strict=True)
        ]

    def _captured_below(self, launch: tuple, creation: tuple, first: tuple) -> list[Range]:
        """The ranges at a creation below those at the launch of a replay whose first node was created then."""
        at_launch = self.chain_at(*launch)
        begins, ends = (
            sorted(
                at for at, thread, _, name in self.calls
                if thread >> 24 == launch[1] >> 24 and at <= first[0] and f"Stream{which}Capture" in (name or "")
            )
            for which in ("Begin", "End")
        )  # fmt: skip
        began = begins[-1] if len(begins) > len(ends) else first[0]
        opened = [r.name for r in at_launch]
        around = [r.order() for r in self.chain_at(*first) if r.start < began and r.name in opened]
        captured = [r for r in self.chain_at(*creation) if not around or r.order() > max(around)]
        names = [r.name for r in captured]
        if not names or names[0] not in opened:
            return captured
        level, count = len(opened) - 1 - opened[::-1].index(names[0]), 1
        while count < min(len(names), len(opened) - level) and names[count] == opened[level + count]:
            count += 1
        return captured[count:]
