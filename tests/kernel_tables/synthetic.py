"""Tiny captures with nsys's tables, in a few lines: `Synthetic().range("step", 0, 100).kernel("gemm", at=10)`."""

from __future__ import annotations

import random
import sqlite3
import struct
from contextlib import closing
from pathlib import Path

PUSH_POP, START_END = 59, 60
HOST = 1 << 48
PYTHON_DOMAIN = "Python Periodic Sampling"

COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId globalPid demangledName graphNodeId"
    " gridX gridY gridZ blockX blockY blockZ",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId streamId correlationId globalPid bytes copyKind srcKind dstKind"
    " graphNodeId",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId streamId correlationId globalPid bytes graphNodeId",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId streamId correlationId globalPid graphId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end globalTid correlationId nameId returnValue",
    "CUDA_GRAPH_NODE_EVENTS": "start end globalTid graphNodeId originalGraphNodeId",
    "OSRT_API": "start end globalTid nameId callchainId",
    "COMPOSITE_EVENTS": "id start globalTid",
    "SAMPLING_CALLCHAINS": "id symbol module stackDepth",
    "NVTX_EVENTS": "start end eventType text globalTid endGlobalTid textId domainId binaryData",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId schemaId idx flags type name offset",
    "DIAGNOSTIC_EVENT": "timestamp severity text globalPid",
    "ANALYSIS_DETAILS": "globalVid duration startTime stopTime",
    "StringIds": "id value",
    "META_DATA_EXPORT": "name value",
}
UNSYNCED = "PRAGMA synchronous = OFF"  # waiting for the disk would take most of the time
TEXT_COLUMNS = {"text", "value", "name"}


def process_id(process: int) -> int:
    """nsys's global id of a process."""
    return HOST | process << 24


def thread_id(thread: int, process: int = 1) -> int:
    """nsys's global id of a thread."""
    return process_id(process) | thread


def changed(path: Path, *statements: str) -> Path:
    """The capture, after the SQL statements."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(UNSYNCED)
        for statement in statements:
            database.execute(statement)
    return path


class Synthetic:
    """A capture under construction; times are ns, threads and processes small numbers."""

    def __init__(self):
        self.rows: dict[str, list[dict]] = {table: [] for table in COLUMNS}
        self._strings: dict[str, int] = {}
        self._next_correlation, self._called = 1, set()
        self.metadata("EXPORT_SCHEMA_VERSION", "3.20.3")

    def metadata(self, name: str, value: str) -> Synthetic:
        self.rows["META_DATA_EXPORT"].append({"name": name, "value": value})
        return self

    def range(self, name, start, end, thread=1, process=1, kind=PUSH_POP, domain=0, registered=False, end_thread=None):
        """A range; END is None where it was never closed, END_THREAD another thread that ended it."""
        named = {"textId": self.string(name)} if registered else {"text": name}
        ended_by = None if end_thread is None else thread_id(end_thread, process)
        row = {"start": start, "end": end, "eventType": kind, "domainId": domain, "endGlobalTid": ended_by} | named
        self.rows["NVTX_EVENTS"].append(row | {"globalTid": thread_id(thread, process)})
        return self

    def domain(self, number: int, name: str, process: int = 1, at: int = 0) -> Synthetic:
        self.rows["NVTX_EVENTS"].append(
            {"start": at, "eventType": 75, "text": name, "globalTid": thread_id(1, process), "domainId": number}
        )
        return self

    def call(self, at, correlation, thread=1, process=1, api="cudaLaunchKernel_v7000", duration=1, returned=0):
        """An API call."""
        row = {"start": at, "end": at + duration, "globalTid": thread_id(thread, process), "returnValue": returned}
        row |= {"correlationId": correlation, "nameId": self.string(api)}
        self.rows["CUPTI_ACTIVITY_KIND_RUNTIME"].append(row)
        self._called.add((correlation, process))
        return self

    def kernel(self, name, at, start=None, duration=10, grid=(None,) * 3, block=(None,) * 3, **where) -> Synthetic:
        """A kernel launched AT a time (None: before the capture), that ran from START (default: 5 ns later)."""
        sizes = zip(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), (*grid, *block), strict=True)
        more = {"demangledName": name} | dict(sizes)
        return self._activity("CUPTI_ACTIVITY_KIND_KERNEL", at, start, duration, more, **where)

    def memcpy(self, at, start=None, duration=10, copy_kind=1, size=None, source=None, target=None, **where):
        """A copy of SIZE bytes; SOURCE and TARGET are kinds of memory: 0 pageable, 1 pinned, 2 of the device."""
        more = {"copyKind": copy_kind, "bytes": size, "srcKind": source, "dstKind": target}
        return self._activity("CUPTI_ACTIVITY_KIND_MEMCPY", at, start, duration, more, **where)

    def memset(self, at, start=None, duration=10, **where) -> Synthetic:
        return self._activity("CUPTI_ACTIVITY_KIND_MEMSET", at, start, duration, {}, **where)

    def graph(self, number, at, start=None, duration=10, **where) -> Synthetic:
        """One replay of a CUDA graph, recorded as a whole."""
        return self._activity("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", at, start, duration, {"graphId": number}, **where)

    def node(self, number: int, at: int, thread=1, process=1, original: int | None = None) -> Synthetic:
        """The creation of a node of a CUDA graph; with an ORIGINAL, as its clone."""
        row = {"start": at, "end": at, "globalTid": thread_id(thread, process), "graphNodeId": number}
        self.rows["CUDA_GRAPH_NODE_EVENTS"].append(row | {"originalGraphNodeId": original})
        return self

    def stream_capture(self, first: int, last: int, thread=1, process=1) -> Synthetic:
        """The calls that begin and end the capture of a stream into a graph."""
        for at, name in ((first, "Begin"), (last, "End")):
            self.call(at, -1, thread, process, api=f"cudaStream{name}Capture_v10000")
        return self

    def diagnostic(self, severity: int, text: str, process: int = 1) -> Synthetic:
        said = {"timestamp": 0, "severity": severity, "text": text, "globalPid": process_id(process)}
        self.rows["DIAGNOSTIC_EVENT"].append(said)
        return self

    def lasting(self, first: int, last: int) -> Synthetic:
        """What nsys says of the capture's own bounds."""
        bounds = {"globalVid": HOST, "duration": last - first, "startTime": first, "stopTime": last}
        self.rows["ANALYSIS_DETAILS"].append(bounds)
        return self

    def os_call(self, name: str, at: int, duration: int, thread=1, process=1) -> Synthetic:
        """A call of the operating system's runtime."""
        row = {"start": at, "end": at + duration, "globalTid": thread_id(thread, process), "nameId": self.string(name)}
        self.rows["OSRT_API"].append(row)
        return self

    def sample(self, at: int, *stack: tuple[str, str], thread=1, process=1) -> Synthetic:
        """A sampled stack of (function, module), innermost first."""
        number = len(self.rows["COMPOSITE_EVENTS"]) + 1
        self.rows["COMPOSITE_EVENTS"].append({"id": number, "start": at, "globalTid": thread_id(thread, process)})
        self.rows["SAMPLING_CALLCHAINS"] += [
            {"id": number, "symbol": self.string(symbol), "module": self.string(module), "stackDepth": depth}
            for depth, (symbol, module) in enumerate(stack)
        ]
        return self

    def python_sample(self, at: int, *stack: tuple[str, str], thread=1, process=1, domain=7) -> Synthetic:
        """A Python stack of (function, file), innermost first, as nsys's own sampler marks it."""
        if not any(row.get("text") == PYTHON_DOMAIN for row in self.rows["NVTX_EVENTS"]):
            self.domain(domain, PYTHON_DOMAIN, process)
        frames = [(self.string(function), self.string(file), 1 + line) for line, (function, file) in enumerate(stack)]
        payload = struct.pack("<QII", thread, 1, len(frames)) + b"".join(struct.pack("<QQQ", *f) for f in frames)
        head = struct.pack("<QQQQ", domain, 1 << 32, len(payload), 32)
        row = {"start": at, "eventType": 34, "globalTid": thread_id(thread, process), "domainId": domain}
        self.rows["NVTX_EVENTS"].append(row | {"binaryData": head + payload})
        return self

    def nccl(self, name, start, end, size=None, communicator=77, thread=1, process=1, domain=3, layout=5) -> Synthetic:
        """A call of NCCL as NCCL itself marks it; with a SIZE its payload tells that and the communicator."""
        entries = [{"domainId": domain, "schemaId": layout, "idx": 0, "type": 18, "name": "NCCL communicator ID"}]
        entries.append(entries[0] | {"idx": 1, "type": 22, "name": "Message size [bytes]", "offset": 8})
        layouts = self.rows["NVTX_PAYLOAD_SCHEMA_ENTRIES"]
        layouts += [entry for entry in entries if entry not in layouts]
        own = {"text": "NCCL", "globalTid": thread_id(1, process)}
        if not any(own.items() <= row.items() for row in self.rows["NVTX_EVENTS"]):
            self.domain(domain, "NCCL", process)
        self.range(name, start, end, thread, process, domain=domain)
        if size is not None:
            data = struct.pack("<QQII", communicator, size, 4, 0xABCD)  # the last four bytes are a gap
            self.rows["NVTX_EVENTS"][-1]["binaryData"] = struct.pack("<QQQQ", domain, layout, len(data), 32) + data
        return self

    def string(self, value: str) -> int:
        if value not in self._strings:
            self._strings[value] = len(self._strings) + 1
            self.rows["StringIds"].append({"id": self._strings[value], "value": value})
        return self._strings[value]

    def write(self, path: Path, lacking: tuple[str, ...] = ()) -> Path:
        """PATH, written; tables without rows are left out as nsys does, and so are the tables and columns LACKING."""
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as connection:
            connection.execute(UNSYNCED)
            for table, columns in COLUMNS.items():
                rows = self.rows[table]
                if table in lacking or not rows:
                    continue
                names = [column for column in columns.split() if f"{table}.{column}" not in lacking]
                types = [f'"{name}" {"TEXT" if name in TEXT_COLUMNS else "INTEGER"}' for name in names]
                connection.execute(f"CREATE TABLE {table} ({', '.join(types)})")
                marks = ", ".join("?" * len(names))
                values = [[row.get(name) for name in names] for row in rows]
                connection.executemany(f"INSERT INTO {table} VALUES ({marks})", values)
        connection.close()
        return path

    def _activity(
        self, table, at, start, duration, more, thread=1, process=1, device=0, stream=7, correlation=None, node=None
    ):
        if correlation is None:
            correlation, self._next_correlation = self._next_correlation, self._next_correlation + 1
        if at is not None and (correlation, process) not in self._called:
            self.call(at, correlation, thread, process)
        start = (at or 0) + 5 if start is None else start
        if "demangledName" in more:
            more = more | {"demangledName": self.string(more["demangledName"])}
        row = {"start": start, "end": start + duration, "deviceId": device, "streamId": stream, "graphNodeId": node}
        self.rows[table].append(row | {"correlationId": correlation, "globalPid": process_id(process)} | more)
        return self


def random_capture(seed: int) -> Synthetic:
    """Ranges of several threads and processes that nest, or cross each other; launches, and replays of graphs. The
    clock is short, so that ends and starts meet often; rows are in any order."""
    chosen, capture, last = random.Random(seed), Synthetic(), 24
    some, number = (lambda *values: chosen.choice(values)), chosen.randint
    for process in range(1, some(1, 1, 2) + 1):
        for thread in range(1, number(1, 4) + 1):
            where = {"thread": thread, "process": process}
            for _ in range(number(0, 6) if some(True, False) else 0):  # may cross each other
                first, final = sorted((number(0, last), number(0, last)))
                capture.range(some(*"abc"), first, final, kind=START_END, **where)
            opened = []
            for at in sorted(number(0, last) for _ in range(some(0, 10))):
                if opened and some(True, False):
                    capture.range(*opened.pop(), at, registered=some(True, False), **where)
                else:
                    opened.append((some(*"abc"), at))
            for name, start in opened:
                capture.range(name, start, some(None, last), **where)
    nodes = some(0, 3, 6)
    for place in range(number(0, 14)):
        at, correlation = some(None, *[number(0, last)] * 5), 1 + place // 3
        where = {"start": number(0, 40), "thread": number(1, 5), "process": number(1, 2), "correlation": correlation}
        add = some(capture.kernel, capture.memcpy, capture.memset, capture.graph)
        node = some({}, {"node": number(1, 6)})
        if add == capture.graph:
            capture.graph(1, at, **where)
        else:
            add(*(["k", at] if add == capture.kernel else [at]), **where, **node)
    for place in range(1, nodes + 1):
        at, thread, original = number(-1, last), number(1, 4), some(None, None, place - 1)
        if original is None or some(True, False):
            capture.node(place, at, thread)
        if original is not None:
            capture.node(place, at, thread, original=original)
    for _ in range(number(0, 2) if nodes else 0):
        capture.stream_capture(*sorted((number(0, last), number(0, last))))
    for rows in capture.rows.values():
        chosen.shuffle(rows)
    return capture
