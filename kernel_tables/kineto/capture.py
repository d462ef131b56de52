"""A trace of PyTorch's profiler (Kineto) as a SQLite file with the tables and columns of an nsys export.

On a GPU: the ranges, the API calls, and the kernels, copies and fills, joined by correlation id. On a processor: each
outermost ATen operator (or kernel of inductor) of a thread is one row of the kernel table, with a launch row of the
same interval; operators inside it are part of its time, so every nanosecond is counted once. Each collective of Gloo is
a row, too, launched by the call that started it (ranges.py).
"""

import re
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kernel_tables.global_ids import process_of, thread_number
from kernel_tables.kineto import capture_schema
from kernel_tables.kineto.events import collective_bytes, operation_named
from kernel_tables.kineto.graphs import graph_nodes
from kernel_tables.kineto.modules import Range, outermost, rows_by_thread
from kernel_tables.kineto.ranges import derived_ranges, gloo_collectives, recorded_ranges
from kernel_tables.kineto.trace import (
    ANNOTATION,
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

PUSH_POP_TYPE = 59  # ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange
# ENUM_CUDA_MEMCPY_OPER, by the word after "Memcpy" in the names that Kineto gives to copies.
COPY_KIND_BY_WORD = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9}
MEMORY_KINDS = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")  # by number
BETWEEN_MEMORIES = re.compile(r"\(([\w ]+?) -> ([\w ]+?)\)")
INDUCTOR_KERNEL = re.compile(r"(graph_\d+_)?cpp_fused_")
MAX_NUMBER = 1 << 62  # that a property of a device may have
Table = dict[str, Sequence[Any]]  # the values of every column


class CaptureError(RuntimeError):
    """The profiler's trace does not hold what a capture needs."""


def export_capture(profiler: Any, capture: Path, on_gpu: bool, torch_version: str) -> None:
    """Writes the window that a finished torch.profiler.profile recorded, as SQLite, completely or not at all.
    CaptureError if no activity was recorded."""
    with tempfile.TemporaryDirectory(prefix="kineto-") as folder:
        trace_path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace_path))
        trace = TorchTrace(trace_path)
    tables = capture_tables(trace, on_gpu, torch_version)
    with written_whole(capture) as partial:
        write_capture(tables, partial)


def capture_tables(
    trace: TorchTrace, on_gpu: bool, torch_version: str = "unknown", *, derive_ranges: bool = False
) -> dict[str, Table]:
    """The columns of every table that gets rows. With `derive_ranges`, for a trace that the recorder did not write,
    modules or operators become ranges, too (derived_ranges). CaptureError if no activity was recorded."""
    strings = Strings()
    tables = _gpu_tables(trace, strings) if on_gpu else _cpu_tables(trace, strings)
    if not len(tables["CUPTI_ACTIVITY_KIND_KERNEL"]["start"]) and not trace.count(COPY, FILL):
        raise CaptureError(
            f"the profiler recorded {trace.counts.total()} events and no {'kernel' if on_gpu else 'ATen operator'}: "
            "on a GPU, CUPTI may be refused to this user or taken by another profiler (nsys around this program?)"
        )
    ranges = derived_ranges(trace, on_gpu=on_gpu) if derive_ranges else recorded_ranges(trace, on_gpu=on_gpu)
    tables["NVTX_EVENTS"] = _range_table(ranges)
    tables["TARGET_INFO_SESSION_START_TIME"] = {"utcEpochNs": [trace.began_utc_ns]}
    tables["TARGET_INFO_GPU"] = _gpu_table(trace.facts.get("deviceProperties"))
    last_ns = trace.last_ns  # a reader refuses times after the end that a capture states
    tables["ANALYSIS_DETAILS"] = {"globalVid": [0], "duration": [last_ns], "startTime": [0], "stopTime": [last_ns]}
    tables["META_DATA_EXPORT"] = _metadata(torch_version)
    tables["StringIds"] = {"id": range(len(strings.values)), "value": strings.values}  # of all tables above
    return tables


def write_capture(tables: dict[str, Table], path: Path) -> None:
    """Writes a new SQLite file with every table of the schema; those not in `tables` are empty."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = OFF")  # the file appears when it is complete, or not at all
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        for table, columns in capture_schema.SCHEMA.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
        for table, columns in tables.items():
            names = ", ".join(f'"{name}"' for name in columns)
            placeholders = ", ".join("?" * len(columns))
            rows = zip(*(_values(name, column) for name, column in columns.items()), strict=True)
            connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({placeholders})", rows)
    connection.close()


def _values(name: str, column: Sequence[Any]) -> Sequence[Any]:
    """The values of a column for SQLite: the number NONE (-1) becomes NULL, except for times, which may be -1 ns."""
    if not isinstance(column, np.ndarray):
        return column
    values = column.tolist()
    if name in ("start", "end"):
        return values
    return [None if value == NONE else value for value in values] if (column == NONE).any() else values


class Strings(Numbers):
    """The ids of distinct strings, for the table StringIds."""

    def ids_of(self, trace: TorchTrace, kind: str, rows: np.ndarray | slice = slice(None), convert=str) -> np.ndarray:
        """The id of the name of each event of a kind, converted by `convert`."""
        names = trace.names.values
        distinct, index = np.unique(trace[kind]["name"][rows], return_inverse=True)
        return self.numbers([convert(names[number]) for number in distinct.tolist()])[index]


def outermost_operators(trace: TorchTrace) -> np.ndarray:
    """The rows of the outermost ATen operators and inductor's kernels of each thread, by start. Autograd's nodes
    ("MulBackward0") do not count, since they only call operators."""
    operators, names = trace[OPERATOR], trace.names.values
    is_computation = [name.startswith("aten::") or INDUCTOR_KERNEL.match(name) is not None for name in names]
    threads = rows_by_thread(operators["thread"], np.isin(operators["name"], np.flatnonzero(is_computation)))
    rows = np.concatenate([np.empty(0, np.int64), *(outermost(operators, rows) for rows in threads.values())])
    return rows[np.lexsort((operators["order"][rows], -operators["end"][rows], operators["start"][rows]))]


def short_name(kernel: str) -> str:
    """nsys's shortName: the function's name without return type, namespaces, template and call arguments."""
    bare = kernel.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").partition("<")[0].partition("(")[0]
    return bare.split("::")[-1].split(" ")[-1] or kernel


def copy_kind(name: str) -> int:
    """ENUM_CUDA_MEMCPY_OPER of "Memcpy HtoD (Pageable -> Device)"; 0 (unknown) for a direction that has no number."""
    words = name.split()
    return COPY_KIND_BY_WORD.get(words[1], 0) if len(words) > 1 else 0


def _memory_kinds(names: Sequence[str]) -> tuple[list[int | None], list[int | None]]:
    """ENUM_CUDA_MEM_KIND of sources and targets of "Memcpy HtoD (Pageable -> Device)"; both None if one is unknown."""
    sources, targets = [], []
    for name in names:
        match = BETWEEN_MEMORIES.search(name)
        is_known = match is not None and set(match.groups()) <= set(MEMORY_KINDS)
        sources.append(MEMORY_KINDS.index(match[1]) if is_known else None)
        targets.append(MEMORY_KINDS.index(match[2]) if is_known else None)
    return sources, targets


def _cpu_tables(trace: TorchTrace, strings: Strings) -> dict[str, Table]:
    """The tables of activities (operators, which launch themselves, and after them Gloo's collectives) and launches."""
    operators, collectives = outermost_operators(trace), gloo_collectives(trace)
    annotations = np.array([collective.annotation for collective in collectives], np.int64)
    names = np.concatenate([strings.ids_of(trace, OPERATOR, operators), strings.ids_of(trace, ANNOTATION, annotations)])
    activities = {
        key: np.concatenate([trace[OPERATOR][key][operators], trace[ANNOTATION][key][annotations]])
        for key in ("start", "end", "thread")
    }
    correlation = np.arange(1, len(names) + 1)
    activities |= {
        "device": np.full(len(names), capture_schema.CPU_DEVICE),
        "context": np.zeros(len(names), np.int64),
        "stream": thread_number(activities["thread"]),
        "correlation": correlation,
    }
    calls = np.array([collective.call for collective in collectives], np.int64)
    launching = np.concatenate([operators, calls])  # by activity, the row of the operator that launched it, or NONE
    is_known = launching != NONE
    launches = launching[is_known]
    launch_columns = {name: trace[OPERATOR][name][launches] for name in ("start", "end", "thread")}
    launch_columns["correlation"] = correlation[is_known]
    kernel_table = _operation_table(activities, process_of(activities["thread"])) | _name_columns(names, names)
    return {
        "CUPTI_ACTIVITY_KIND_KERNEL": kernel_table,
        "CUPTI_ACTIVITY_KIND_RUNTIME": _launch_table(launch_columns, strings.ids_of(trace, OPERATOR, launches)),
    }


def _gpu_tables(trace: TorchTrace, strings: Strings) -> dict[str, Table]:
    calls, kernels = trace[CALL], trace[KERNEL]
    call_rows = np.flatnonzero(calls["correlation"] != NONE)
    calls = {name: column[call_rows] for name, column in calls.items()}
    process_of_call = dict(zip(calls["correlation"].tolist(), process_of(calls["thread"]).tolist(), strict=True))
    usual_process = _usual_process(trace)

    def processes(correlations: Sequence[int | None]) -> np.ndarray:
        return np.array([process_of_call.get(correlation, usual_process) for correlation in correlations], np.int64)

    nodes = graph_nodes(trace)  # the id of a node is the row of the call that created it

    def operations(kind: str) -> Table:
        table = _operation_table(trace[kind], processes(trace[kind]["correlation"].tolist()))
        return table | {"graphNodeId": nodes.call_rows[kind]}

    full, short = strings.ids_of(trace, KERNEL), strings.ids_of(trace, KERNEL, convert=short_name)
    copy_names = trace.names_of(COPY)
    source_kinds, target_kinds = _memory_kinds(copy_names)
    sizes = {name: kernels[name] for name in SIZES} | {"registersPerThread": kernels["registers"]}
    return {
        "CUPTI_ACTIVITY_KIND_RUNTIME": _launch_table(calls, strings.ids_of(trace, CALL, call_rows)),
        "CUPTI_ACTIVITY_KIND_KERNEL": operations(KERNEL) | _name_columns(full, short) | sizes,
        "CUPTI_ACTIVITY_KIND_MEMCPY": operations(COPY)
        | {"bytes": trace[COPY]["bytes"], "copyKind": list(map(copy_kind, copy_names))}
        | {"srcKind": source_kinds, "dstKind": target_kinds},
        "CUPTI_ACTIVITY_KIND_MEMSET": operations(FILL)
        | {"bytes": trace[FILL]["bytes"], "value": [0] * trace.count(FILL)},
        "CUDA_GRAPH_NODE_EVENTS": {
            "start": trace[CALL]["start"][nodes.creations],
            "globalTid": trace[CALL]["thread"][nodes.creations],
            "graphNodeId": nodes.creations,
            "originalGraphNodeId": np.full(len(nodes.creations), NONE),
        },
        capture_schema.COLLECTIVES: {
            "globalPid": processes([request.correlation for request in trace.collectives]),
            "correlationId": [request.correlation for request in trace.collectives],
            "operation": [operation_named(request.name) for request in trace.collectives],
            "bytes": collective_bytes(trace.collectives),
            "communicator": [request.communicator for request in trace.collectives],
        },
    }


def _usual_process(trace: TorchTrace) -> int:
    """The global id of the process of the first call, operator or annotation, else 0: a trace contains one process."""
    threads = [trace[kind]["thread"] for kind in (CALL, OPERATOR, ANNOTATION) if trace.count(kind)]
    return process_of(int(threads[0][0])) if threads else 0


def _operation_table(events: Columns, process: np.ndarray) -> Table:
    return {
        "start": events["start"],
        "end": events["end"],
        "deviceId": events["device"].tolist(),  # as a list, since _values leaves the -1 in it, the processor
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


def _range_table(ranges: Sequence[Range]) -> Table:
    columns = zip(*ranges, strict=True) if ranges else [()] * len(Range._fields)
    table = dict(zip(("start", "end", "globalTid", "text"), map(list, columns), strict=True))
    return table | {"eventType": [PUSH_POP_TYPE] * len(ranges), "domainId": [0] * len(ranges)}


def _gpu_table(devices: Any) -> Table:
    """TARGET_INFO_GPU from Kineto's deviceProperties, without impossible values."""
    devices = devices if isinstance(devices, list) else []
    devices = [device for device in devices if isinstance(device, dict) and _is_number(device.get("id"))]
    keys = {  # by column, the key in deviceProperties
        "id": "id", "totalMemory": "totalGlobalMem", "smCount": "numSms", "threadsPerWarp": "warpSize",
        "computeMajor": "computeMajor", "computeMinor": "computeMinor",
    }  # fmt: skip
    names = [str(device.get("name", "unnamed")).encode(errors="replace").decode() for device in devices]
    return {"vmId": [0] * len(devices), "name": names} | {
        column: [device[key] if _is_number(device.get(key)) else None for device in devices]
        for column, key in keys.items()
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and abs(value) < MAX_NUMBER


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
