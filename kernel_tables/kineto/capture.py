"""A trace of PyTorch's profiler (Kineto) as a SQLite file with the tables and columns of an nsys export.

On a GPU: the ranges, the API calls, and the kernels, copies and fills, joined by correlation id. On a processor: each
outermost ATen operator of a thread is one row of the kernel table, with a launch row of the same interval; operators
inside it are part of its time, so every nanosecond is counted once. So is each collective of Gloo (ranges.py).
"""

import re
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernel_tables.kineto import backward, capture_schema, modules
from kernel_tables.kineto.events import collective_rows
from kernel_tables.kineto.graphs import graph_nodes
from kernel_tables.kineto.ranges import launched_collectives, ranges_of, recorded_ranges
from kernel_tables.kineto.trace import (
    ANNOTATION,
    BITS,
    CALL,
    COPY,
    FILL,
    KERNEL,
    NONE,
    OPERATOR,
    SIZES,
    Columns,
    Numbers,
    TorchTrace,
)  # fmt: skip
from kernel_tables.whole_files import written_whole

PUSH_POP_RANGE = 59  # ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange
# ENUM_CUDA_MEMCPY_OPER, by the word after "Memcpy" in the names that Kineto gives to copies.
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9}
MEMORY_KINDS = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")  # by number
BETWEEN_KINDS = re.compile(r"\(([\w ]+?) -> ([\w ]+?)\)")
INDUCTOR_KERNEL = re.compile(r"(graph_\d+_)?cpp_fused_")
PROCESS = ~((1 << BITS) - 1)

LARGEST = 1 << 62
Table = dict[str, Sequence[Any]]  # the values of every column


class CaptureError(RuntimeError):
    """The profiler's trace does not hold what a capture needs."""


def export_capture(profiler: Any, path_to_capture: Path, on_gpu: bool, torch_version: str) -> None:
    """Writes the window that a finished torch.profiler.profile recorded to `path_to_capture`, as SQLite. The file
    appears under its name only when it is complete; the intermediate trace is in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kineto-") as folder:
        path_to_trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path_to_trace))
        trace = TorchTrace(path_to_trace)
    tables = capture_tables(trace, on_gpu, torch_version)
    with written_whole(path_to_capture) as partial:
        write_capture(tables, partial)


def capture_tables(
    trace: TorchTrace, on_gpu: bool, torch_version: str = "unknown", *, without_marks: bool = False
) -> dict[str, Table]:
    """The columns of every table by name; `without_marks` of this project, ranges are derived from modules and
    operators. CaptureError if nothing that took time on the device was recorded."""
    strings = Strings()
    tables = _gpu_tables(trace, strings) if on_gpu else _cpu_tables(trace, strings)
    if not len(tables["CUPTI_ACTIVITY_KIND_KERNEL"]["start"]) and not trace.count(COPY, FILL):
        raise CaptureError(
            f"the profiler recorded {trace.counts.total()} events and no {'kernel' if on_gpu else 'ATen operator'}: "
            "on a GPU, CUPTI may be refused to this user or taken by another profiler (nsys around this program?)"
        )
    ranges = ranges_of(trace, on_gpu=on_gpu) if without_marks else recorded_ranges(trace, on_gpu=on_gpu)
    tables["NVTX_EVENTS"] = _range_table(ranges)
    tables["TARGET_INFO_SESSION_START_TIME"] = {"utcEpochNs": [trace.began_utc_ns]}
    tables["TARGET_INFO_GPU"] = _gpu_table(trace.facts.get("deviceProperties"))
    last_ns = trace.last_ns  # no time that is read later may be outside
    tables["ANALYSIS_DETAILS"] = {"globalVid": [0], "duration": [last_ns], "startTime": [0], "stopTime": [last_ns]}
    tables["META_DATA_EXPORT"] = _metadata(torch_version)
    tables["StringIds"] = {"id": range(len(strings.values)), "value": strings.values}
    return tables


def write_capture(tables: dict[str, Table], path: Path) -> None:
    """A new SQLite file with every table of the schema, empty if it has no rows."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = OFF")  # the file appears when it is complete, or not at all
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        for table, columns in capture_schema.SCHEMA.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
        for table, columns in tables.items():
            names = ", ".join(f'"{name}"' for name in columns)
            values = ", ".join("?" * len(columns))
            rows = zip(*(_values(*column) for column in columns.items()), strict=True)
            connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({values})", rows)
    connection.close()


def _values(name: str, column: Sequence[Any]) -> Sequence[Any]:
    """The values of a column as SQLite takes them; NULL for a number that is missing. No time is: -1 is a wrong one."""
    if not isinstance(column, np.ndarray):
        return column
    values = column.tolist()
    if name in ("start", "end"):
        return values
    return [None if value == NONE else value for value in values] if (column == NONE).any() else values


class Strings(Numbers):
    """The StringIds table while it grows: one id per distinct string."""

    def ids_of(self, trace: TorchTrace, kind: str, rows: np.ndarray | slice = slice(None), convert=str) -> np.ndarray:
        """The id of the name of each event of a kind, converted by `convert`."""
        names = trace.names.values
        distinct, place = np.unique(trace[kind]["name"][rows], return_inverse=True)
        return self.numbers([convert(names[number]) for number in distinct.tolist()])[place]


def outermost_operators(trace: TorchTrace) -> np.ndarray:
    """The rows of the outermost ATen operators and inductor's kernels of each thread, by start.
    Autograd's nodes ("MulBackward0") are not operators: they launch nothing themselves, and what they call is counted.
    """
    operators = trace[OPERATOR]
    names = trace.names.values
    wanted = [n for n, name in enumerate(names) if name.startswith("aten::") or INDUCTOR_KERNEL.match(name)]
    threads = modules.by_thread(operators["thread"], np.isin(operators["name"], wanted))
    by_start = [
        rows[modules.outermost(*(operators[name][rows] for name in ("start", "end", "order")))]
        for rows in threads.values()
    ]
    rows = np.concatenate([np.empty(0, np.int64), *by_start])
    return rows[np.lexsort((operators["order"][rows], -operators["end"][rows], operators["start"][rows]))]


def short_name(kernel: str) -> str:
    """The function's name without return type, namespaces, template and call arguments: what nsys calls shortName."""
    bare = kernel.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").partition("<")[0].partition("(")[0]
    return bare.split("::")[-1].split(" ")[-1] or kernel


def copy_kind(name: str) -> int:
    """ENUM_CUDA_MEMCPY_OPER of "Memcpy HtoD (Pageable -> Device)"; 0 (unknown) for a direction that has no number."""
    words = name.split()
    return COPY_KINDS.get(words[1], 0) if len(words) > 1 else 0


def _memory_kinds(names: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
    """ENUM_CUDA_MEM_KIND of the source and the target of "Memcpy HtoD (Pageable -> Device)"; None if unknown."""
    matches = [BETWEEN_KINDS.search(name) for name in names]
    known = [match if match and {*match.groups()} <= {*MEMORY_KINDS} else None for match in matches]
    return tuple([match and MEMORY_KINDS.index(match[side]) for match in known] for side in (1, 2))


def _cpu_tables(trace: TorchTrace, strings: Strings) -> dict[str, Table]:
    rows, collectives = outermost_operators(trace), launched_collectives(trace)
    works = np.array([work for work, _ in collectives], np.int64)
    calls = [(len(rows) + place, call) for place, (_, call) in enumerate(collectives, 1) if call is not None]
    called = np.concatenate([rows, np.array([call for _, call in calls], np.int64)])
    correlation = np.concatenate([np.arange(1, len(rows) + 1), np.array([number for number, _ in calls], np.int64)])
    launches = {name: trace[OPERATOR][name][called] for name in ("start", "end", "thread")}
    name = np.concatenate([strings.ids_of(trace, OPERATOR, rows), strings.ids_of(trace, ANNOTATION, works)])
    work = {
        key: np.concatenate([trace[OPERATOR][key][rows], trace[ANNOTATION][key][works]])
        for key in ("start", "end", "thread")
    }
    work |= {
        "device": np.full(len(name), capture_schema.CPU_DEVICE),
        "context": np.zeros(len(name), np.int64),
        "stream": work["thread"] & ~PROCESS,
        "correlation": np.arange(1, len(name) + 1),
    }
    return {
        "CUPTI_ACTIVITY_KIND_KERNEL": _operation_table(work, work["thread"] & PROCESS) | _name_columns(name, name),
        "CUPTI_ACTIVITY_KIND_RUNTIME": _launch_table(
            launches | {"correlation": correlation}, strings.ids_of(trace, OPERATOR, called)
        ),
    }


def _gpu_tables(trace: TorchTrace, strings: Strings) -> dict[str, Table]:
    calls, kernels = trace[CALL], trace[KERNEL]
    called = np.flatnonzero(calls["correlation"] != NONE)
    calls = {name: column[called] for name, column in calls.items()}
    of_call = dict(zip(calls["correlation"].tolist(), (calls["thread"] & PROCESS).tolist(), strict=True))
    usual = _usual_process(trace)

    def process(correlations: Sequence[int]) -> np.ndarray:
        return np.array([of_call.get(number, usual) for number in correlations], np.int64)

    nodes = graph_nodes(trace)

    def operations(kind: str) -> Table:
        table = _operation_table(trace[kind], process(trace[kind]["correlation"].tolist()))
        return table | {"graphNodeId": nodes.of_activities[kind]}

    full, short = strings.ids_of(trace, KERNEL), strings.ids_of(trace, KERNEL, convert=short_name)
    sizes = {name: kernels[name] for name in SIZES} | {"registersPerThread": kernels["registers"]}
    collectives = collective_rows(trace.collectives)
    columns = ("correlationId", "operation", "bytes", "communicator")
    return {
        "CUPTI_ACTIVITY_KIND_RUNTIME": _launch_table(calls, strings.ids_of(trace, CALL, called)),
        "CUPTI_ACTIVITY_KIND_KERNEL": operations(KERNEL) | _name_columns(full, short) | sizes,
        "CUPTI_ACTIVITY_KIND_MEMCPY": operations(COPY)
        | {"bytes": trace[COPY]["bytes"], "copyKind": [copy_kind(name) for name in trace.names_of(COPY)]}
        | dict(zip(("srcKind", "dstKind"), _memory_kinds(trace.names_of(COPY)), strict=True)),
        "CUPTI_ACTIVITY_KIND_MEMSET": operations(FILL)
        | {"bytes": trace[FILL]["bytes"], "value": [0] * trace.count(FILL)},
        "CUDA_GRAPH_NODE_EVENTS": {
            "start": trace[CALL]["start"][nodes.creations],
            "globalTid": trace[CALL]["thread"][nodes.creations],
            "graphNodeId": nodes.creations,
            "originalGraphNodeId": np.full(len(nodes.creations), NONE),
        },
        capture_schema.COLLECTIVES: {name: [row[name] for row in collectives] for name in columns}
        | {"globalPid": process([row["correlationId"] for row in collectives])},
    }


def _usual_process(trace: TorchTrace) -> int:
    """The global id of the process of the first event of a thread: a trace is of one process."""
    threads = [trace[kind]["thread"] for kind in (CALL, OPERATOR, ANNOTATION) if trace.count(kind)]
    return int(threads[0][0]) & PROCESS if threads else 0


def _operation_table(events: Columns, process: np.ndarray) -> Table:
    return {
        "start": events["start"],
        "end": events["end"],
        "deviceId": events["device"].tolist(),  # unchanged: the processor is -1, and no device is unknown
        "contextId": events["context"].tolist(),
        "streamId": events["stream"].tolist(),
        "correlationId": events["correlation"],
        "globalPid": process,
    }


def _name_columns(full: np.ndarray, short: np.ndarray) -> Table:
    return {"demangledName": full, "shortName": short, "mangledName": full}


def _launch_table(calls: Columns, names: np.ndarray) -> Table:
    zeros = [0] * len(names)
    return {
        "start": calls["start"],
        "end": calls["end"],
        "eventClass": zeros,
        "globalTid": calls["thread"],
        "correlationId": calls["correlation"],
        "nameId": names,
        "returnValue": zeros,
    }


def _range_table(ranges: Sequence[backward.Range]) -> Table:
    columns = zip(*ranges, strict=True) if ranges else [()] * len(backward.Range._fields)
    table = dict(zip(("start", "end", "globalTid", "text"), map(list, columns), strict=True))
    return table | {"eventType": [PUSH_POP_RANGE] * len(ranges), "domainId": [0] * len(ranges)}


def _gpu_table(devices: Any) -> Table:
    """TARGET_INFO_GPU from Kineto's deviceProperties, without impossible values."""
    devices = [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []
    devices = [device for device in devices if _is_number(device.get("id"))]
    sizes = {
        "id": "id", "totalMemory": "totalGlobalMem", "smCount": "numSms", "threadsPerWarp": "warpSize",
        "computeMajor": "computeMajor", "computeMinor": "computeMinor",
    }  # fmt: skip
    names = [str(device.get("name", "unnamed")).encode(errors="replace").decode() for device in devices]
    return {"vmId": [0] * len(devices), "name": names} | {
        column: [device[key] if _is_number(device.get(key)) else None for device in devices]
        for column, key in sizes.items()
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < LARGEST


def _metadata(torch_version: str) -> Table:
    major, minor, _ = capture_schema.SCHEMA_VERSION.split(".")
    values = {
        "EXPORT_PRODUCT_NAME": "PyTorch profiler (Kineto)",
        "EXPORT_PRODUCT_VERSION": torch_version,
        "EXPORT_SCHEMA_VERSION": capture_schema.SCHEMA_VERSION,
        "EXPORT_SCHEMA_VERSION_MAJOR": major,
        "EXPORT_SCHEMA_VERSION_MINOR": minor,
        "CAPTURE_BACKEND": "torch",
    }
    return {"name": list(values), "value": list(values.values())}
