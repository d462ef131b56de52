"""Writing SQLite files with nsys's tables: a copy of an export that may be published, and the capture of a trace.

nsys writes the environment, the command line and every process of the host, with its environment, into each export;
some of it is in StringIds, as values with NUL bytes inside that the sqlite3 shell does not show. So of an export only
the listed tables and text columns are copied, of other columns only numbers, so that a later nsys may add columns,
and of strings only those that a copied row refers to. What is left out is never written: a value that is deleted
afterwards may remain in the file's free space.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from kernel_tables.capture import KINDS, NONE, Capture
from kernel_tables.export import COPY_KINDS, GRAPH_NODES, KERNEL, MEMCPY, MEMSET, NVTX, PUSHED, RUNTIME, STRINGS
from kernel_tables.files import full_disk_as_os_error, written_whole


def write_capture(capture: Capture, path: Path) -> None:
    """Writes the capture of a trace (`trace.read` and the like) as SQLite with nsys's tables and columns, completely or
    not at all; export.read reads it back to the same tables. Raises OSError if the disk is full."""
    with written_whole(path) as partial, full_disk_as_os_error(path), closing(sqlite3.connect(partial)) as database:
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        with database:
            for table, columns in _tables_of(capture).items():
                declared = [
                    f'"{name}" {"TEXT" if name in ("name", "value", "text", "operation") else "INTEGER"}'
                    f"{' NOT NULL' if name in ('start', 'end', 'deviceId', 'id') else ''}"
                    for name in columns
                ]
                database.execute(f"CREATE TABLE {table} ({', '.join(declared)})")
                rows = zip(*(_cells(name, values) for name, values in columns.items()), strict=True)
                database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)


def _tables_of(capture: Capture) -> dict[str, dict]:
    """By table, its columns in order, as arrays or lists."""
    work, calls, ranges, nodes = capture.activities, capture.calls, capture.ranges, capture.nodes
    strings: dict[str, int] = {}  # the id of each
    ids = [strings.setdefault(name, len(strings)) for name in work.names]
    call_ids = {key: strings.setdefault(name, len(strings)) for key, name in calls.names.items()}
    sizes, copies = capture.source.sizes(), capture.source.copies()
    if calls.end is None:
        capture.load_call_ends()

    def operations(kind: str) -> tuple[dict, np.ndarray]:
        """The columns that all kinds of activities have, and the rows of one kind."""
        rows = np.flatnonzero(work.kind == KINDS.index(kind))
        return {
            "start": work.start[rows], "end": work.end[rows], "deviceId": work.stream[rows] >> 32,
            "contextId": np.zeros(len(rows), np.int64), "streamId": work.stream[rows] & 0xFFFFFFFF,
            "correlationId": work.correlation[rows], "globalPid": work.process[rows], "graphNodeId": work.node[rows],
        }, rows  # fmt: skip

    kernels, rows = operations("kernel")
    kernels["demangledName"] = np.array(ids, np.int64)[work.name[rows]]
    for size in ("grid", "block"):
        extents = [[int(part) for part in text.split("x")] if text else [NONE] * 3 for text in sizes[size][rows]]
        extents = np.array(extents, np.int64).reshape(-1, 3)
        kernels |= {f"{size}{axis}": extents[:, place] for place, axis in enumerate("XYZ")}
    moved, rows = operations("memcpy")
    kind_of = {f"[CUDA memcpy {text}]": kind for kind, text in enumerate(COPY_KINDS)}
    moved |= {
        "bytes": copies["bytes"][rows],
        "copyKind": [kind_of.get(work.names[name], 0) for name in work.name[rows]],
    }
    moved |= {"srcKind": copies["source"][rows], "dstKind": copies["target"][rows]}
    filled, rows = operations("memset")
    filled |= {"bytes": copies["bytes"][rows]}

    collectives = capture.source.torch_collectives()
    began_ns = capture.source.began_utc_ns()
    gpus = capture.source.gpus()
    last_ns = max(int(end.max(initial=0)) for end in (work.end, calls.end, ranges.end))
    facts = {"EXPORT_SCHEMA_VERSION": "3.20.0", **capture.facts}
    return {
        "META_DATA_EXPORT": {"name": list(facts), "value": list(facts.values())},
        # A reader refuses times after the end that a capture states.
        "ANALYSIS_DETAILS": {"globalVid": [0], "duration": [last_ns], "startTime": [0], "stopTime": [last_ns]},
        "TARGET_INFO_SESSION_START_TIME": {"utcEpochNs": [] if began_ns is None else [began_ns]},
        "TARGET_INFO_GPU": {"vmId": [0] * len(gpus), "id": list(range(len(gpus))), "name": gpus},
        KERNEL: kernels,
        MEMCPY: moved,
        MEMSET: filled,
        RUNTIME: {
            "start": calls.start, "end": calls.end, "globalTid": calls.threads[calls.thread],
            "correlationId": calls.correlation, "nameId": [call_ids.get(key, NONE) for key in calls.name.tolist()],
            "returnValue": np.zeros(len(calls.start), np.int64),
        },
        NVTX: {
            "start": ranges.start, "end": ranges.end, "eventType": np.full(len(ranges), PUSHED),
            "globalTid": ranges.thread, "text": [ranges.names[name] for name in ranges.name.tolist()],
            "domainId": np.zeros(len(ranges), np.int64),
        },
        GRAPH_NODES: {
            "start": nodes.time, "globalTid": nodes.thread, "graphNodeId": nodes.node,
            "originalGraphNodeId": nodes.original,
        },
        "PROFILER_OVERHEAD": {"start": capture.overhead[0], "end": capture.overhead[1]},
        "TORCH_COLLECTIVES": {  # of this project's own: what PyTorch asked of kernels of NCCL
            "globalPid": [process for process, _ in collectives],
            "correlationId": [correlation for _, correlation in collectives],
            **{name: [one[place] for one in collectives.values()]
               for place, name in enumerate(("operation", "bytes", "communicator"))},
        },
        STRINGS: {"id": list(strings.values()), "value": list(strings)},
    }  # fmt: skip


def _cells(name: str, values) -> list:
    """The values of a column for SQLite: NONE becomes NULL, except in times, and in devices, of which -1 is the CPU."""
    cells = values.tolist() if isinstance(values, np.ndarray) else values
    return cells if name in ("start", "end", "deviceId") else [None if cell == NONE else cell for cell in cells]
