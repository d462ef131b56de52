"""A capture of PyTorch's own profiler as a SQLite file with the tables and columns of an nsys export.

On a GPU: the ranges, the CUDA calls, and the kernels, copies and fills, joined by correlation id. On a CPU: each
outermost ATen operator of a thread is one row of the kernel table, with a launch row of the same interval; operators
inside it are part of its time, so every nanosecond is counted once. So is each collective of Gloo (collectives.py).
Times are integer nanoseconds since the first event: the trace has three decimals of a microsecond, so none is rounded.
"""

import re
import sqlite3
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernel_tables.kineto.capture_schema import COLLECTIVES, CPU_DEVICE, SCHEMA, SCHEMA_VERSION
from kernel_tables.kineto.collectives import is_collective, launched_collectives
from kernel_tables.kineto.nccl_kernels import collective_rows
from kernel_tables.kineto.trace import Event, Trace, global_thread, read_trace
from kernel_tables.whole_files import written_whole

PUSH_POP_RANGE = 59  # ENUM_NSYS_EVENT_TYPE: NvtxPushPopRange
# ENUM_CUDA_MEMCPY_OPER, by the word after "Memcpy" in the names that Kineto gives to copies.
COPY_KINDS = {"HtoD": 1, "DtoH": 2, "HtoA": 3, "AtoH": 4, "AtoA": 5, "AtoD": 6, "DtoA": 7, "DtoD": 8, "HtoH": 9}
INDUCTOR_KERNEL = re.compile(r"(graph_\d+_)?cpp_fused_")
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver")

Row = dict[str, Any]


class CaptureError(RuntimeError):
    """The profiler's trace does not hold what a capture needs."""


def export_capture(profiler: Any, path_to_capture: Path, on_gpu: bool, torch_version: str) -> None:
    """Writes the window that a finished torch.profiler.profile recorded to `path_to_capture`, as SQLite. The file
    appears under its name only when it is whole; the trace between lies in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="kineto-") as folder:
        path_to_trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path_to_trace))
        trace = read_trace(path_to_trace)
    tables = capture_tables(trace, on_gpu, torch_version)
    with written_whole(path_to_capture) as partial:
        write_capture(tables, partial)


def capture_tables(trace: Trace, on_gpu: bool, torch_version: str) -> dict[str, list[Row]]:
    """Rows of every table by its name. CaptureError when nothing that took time on the device was recorded."""
    strings = Strings()
    tables = _gpu_tables(trace, strings) if on_gpu else _cpu_tables(trace, strings)
    if not tables["CUPTI_ACTIVITY_KIND_KERNEL"]:
        raise CaptureError(
            f"the profiler recorded {len(trace.events)} events and no {'kernel' if on_gpu else 'ATen operator'}: "
            "on a GPU, CUPTI may be refused to this user or taken by another profiler (nsys around this program?)"
        )
    tables["NVTX_EVENTS"] = [
        _range_row(event) for event in trace.of("user_annotation") if on_gpu or not is_collective(event)
    ]
    tables["TARGET_INFO_SESSION_START_TIME"] = [{"utcEpochNs": trace.began_utc_ns}]
    tables["TARGET_INFO_GPU"] = [_gpu_row(device) for device in trace.devices]
    tables["ANALYSIS_DETAILS"] = [_bounds_row(trace)]
    tables["META_DATA_EXPORT"] = _metadata_rows(torch_version)
    tables["StringIds"] = strings.rows()
    return tables


def write_capture(tables: dict[str, list[Row]], path: Path) -> None:
    """A new SQLite file with every table of the schema, empty where there are no rows."""
    connection = sqlite3.connect(path)
    with connection:
        for table, columns in SCHEMA.items():
            connection.execute(f"CREATE TABLE {table} ({columns})")
        for table, rows in tables.items():
            if rows:
                names = ", ".join(f'"{name}"' for name in rows[0])
                values = ", ".join(f":{name}" for name in rows[0])
                connection.executemany(f"INSERT INTO {table} ({names}) VALUES ({values})", rows)
    connection.close()


class Strings:
    """The StringIds table while it grows: one id per different string."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}

    def id_of(self, text: str) -> int:
        return self._ids.setdefault(text, len(self._ids))

    def rows(self) -> list[Row]:
        return [{"id": number, "value": text} for text, number in self._ids.items()]


def outermost_operators(events: Iterable[Event]) -> list[Event]:
    """The ATen operators, and inductor's own kernels, with none of them around on their thread, by start. Autograd's
    nodes ("MulBackward0") are no operators: they launch nothing themselves, and what they call is counted."""
    outermost: list[Event] = []
    covered_until_ns: dict[int, int] = {}
    operators = [event for event in events if event.name.startswith("aten::") or INDUCTOR_KERNEL.match(event.name)]
    for event in sorted(operators, key=lambda event: (event.start_ns, -event.end_ns, event.sequence)):
        if event.start_ns >= covered_until_ns.get(event.global_thread, event.start_ns):
            outermost.append(event)
            covered_until_ns[event.global_thread] = event.end_ns
    return outermost


def short_name(kernel: str) -> str:
    """The function's name without return type, namespaces, template and call arguments: what nsys calls shortName."""
    bare = kernel.replace("(anonymous namespace)::", "").replace("<unnamed>::", "").partition("<")[0].partition("(")[0]
    return bare.split("::")[-1].split(" ")[-1] or kernel


def _cpu_tables(trace: Trace, strings: Strings) -> dict[str, list[Row]]:
    kernels, launches = [], []
    for correlation, event in enumerate(outermost_operators(trace.of("cpu_op")), start=1):
        name = strings.id_of(event.name)
        launches.append(_launch_row(event, correlation, name))
        place = {"deviceId": CPU_DEVICE, "contextId": 0, "streamId": event.thread}
        kernels.append(_operation_row(event, place, correlation, event.process) | _name_columns(name, name))
    for correlation, (event, call) in enumerate(launched_collectives(trace), start=len(kernels) + 1):
        name = strings.id_of(event.name)
        if call is not None:
            launches.append(_launch_row(call, correlation, strings.id_of(call.name)))
        place = {"deviceId": CPU_DEVICE, "contextId": 0, "streamId": event.thread}
        kernels.append(_operation_row(event, place, correlation, event.process) | _name_columns(name, name))
    return {"CUPTI_ACTIVITY_KIND_KERNEL": kernels, "CUPTI_ACTIVITY_KIND_RUNTIME": launches}


def _gpu_tables(trace: Trace, strings: Strings) -> dict[str, list[Row]]:
    calls = [event for event in trace.of(*LAUNCH_CATEGORIES) if event.correlation is not None]
    process_of_call = {call.correlation: call.process for call in calls}

    def operation(event: Event) -> Row:
        process = process_of_call.get(event.correlation, trace.process)
        return _operation_row(event, _gpu_place(event), event.correlation, process)

    return {
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            _launch_row(call, call.correlation, strings.id_of(call.name)) for call in calls
        ],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            operation(event)
            | _name_columns(strings.id_of(event.name), strings.id_of(short_name(event.name)))
            | _geometry(event)
            for event in trace.of("kernel")
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            operation(event) | {"bytes": event.args["bytes"], "copyKind": copy_kind(event.name)}
            for event in trace.of("gpu_memcpy")
        ],
        "CUPTI_ACTIVITY_KIND_MEMSET": [
            operation(event) | {"bytes": event.args["bytes"], "value": 0} for event in trace.of("gpu_memset")
        ],
        COLLECTIVES: [
            {"globalPid": global_thread(process_of_call.get(row["correlationId"], trace.process), 0)} | row
            for row in collective_rows(list(trace.of("kernel")))
        ],
    }


def copy_kind(name: str) -> int:
    """ENUM_CUDA_MEMCPY_OPER of "Memcpy HtoD (Pageable -> Device)"; 0 (unknown) for a direction that has no number."""
    words = name.split()
    return COPY_KINDS.get(words[1], 0) if len(words) > 1 else 0


def _operation_row(event: Event, place: Row, correlation: int | None, process: int) -> Row:
    return {
        "start": event.start_ns,
        "end": event.end_ns,
        **place,
        "correlationId": correlation,
        "globalPid": global_thread(process, 0),
    }


def _gpu_place(event: Event) -> Row:
    return {name + "Id": event.args[name] for name in ("device", "context", "stream")}


def _geometry(event: Event) -> Row:
    grid, block = event.args.get("grid", (None,) * 3), event.args.get("block", (None,) * 3)
    sizes = dict(zip(("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ"), (*grid, *block), strict=True))
    return sizes | {"registersPerThread": event.args.get("registers per thread")}


def _name_columns(full: int, short: int) -> Row:
    return {"demangledName": full, "shortName": short, "mangledName": full}


def _launch_row(event: Event, correlation: int, name: int) -> Row:
    return {
        "start": event.start_ns,
        "end": event.end_ns,
        "eventClass": 0,
        "globalTid": event.global_thread,
        "correlationId": correlation,
        "nameId": name,
        "returnValue": 0,
    }


def _range_row(event: Event) -> Row:
    return {
        "start": event.start_ns,
        "end": event.end_ns,
        "eventType": PUSH_POP_RANGE,
        "text": event.name,
        "globalTid": event.global_thread,
        "domainId": 0,
    }


def _gpu_row(device: Row) -> Row:
    """A row of TARGET_INFO_GPU from one entry of Kineto's deviceProperties."""
    return {
        "vmId": 0,
        "id": device["id"],
        "name": device.get("name"),
        "totalMemory": device.get("totalGlobalMem"),
        "smCount": device.get("numSms"),
        "threadsPerWarp": device.get("warpSize"),
        "computeMajor": device.get("computeMajor"),
        "computeMinor": device.get("computeMinor"),
    }


def _bounds_row(trace: Trace) -> Row:
    """When the capture began and ended on its own clock: no time that is read of it later may lie outside."""
    last_ns = max(event.end_ns for event in trace.events)
    return {"globalVid": 0, "duration": last_ns, "startTime": 0, "stopTime": last_ns}


def _metadata_rows(torch_version: str) -> list[Row]:
    major, minor, _ = SCHEMA_VERSION.split(".")
    values = {
        "EXPORT_PRODUCT_NAME": "PyTorch profiler (Kineto)",
        "EXPORT_PRODUCT_VERSION": torch_version,
        "EXPORT_SCHEMA_VERSION": SCHEMA_VERSION,
        "EXPORT_SCHEMA_VERSION_MAJOR": major,
        "EXPORT_SCHEMA_VERSION_MINOR": minor,
        "CAPTURE_BACKEND": "torch",
    }
    return [{"name": name, "value": value} for name, value in values.items()]
