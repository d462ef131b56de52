"""Activities of the GPU, all kinds in the same columns, each with the API call that launched it."""

from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.arrays import concatenated, factorize, index_type, map_blocks
from kernel_tables.attribution.launches import NO_LAUNCH, launch_rows
from kernel_tables.errors import TraceError, impossible
from kernel_tables.global_ids import process_of
from kernel_tables.reading.capture import Capture, Columns
from kernel_tables.reading.schema import GRAPH, KERNEL, MEMCPY, MEMSET, MISSING, TABLE_COLUMNS

KINDS = ("kernel", "memcpy", "memset", "graph")
TABLES = (KERNEL, MEMCPY, MEMSET, GRAPH)  # in the order of KINDS
COUNTS_AS_KERNEL = np.array([True, False, False, True])  # by kind; a replay stands for its kernels
COPY_KINDS = (  # of exports without ENUM_CUDA_MEMCPY_OPER
    "Unknown", "Host-to-Device", "Device-to-Host", "Host-to-Array", "Array-to-Host", "Array-to-Array",
    "Array-to-Device", "Device-to-Array", "Device-to-Device", "Host-to-Host", "Peer-to-Peer",
)  # fmt: skip


@dataclass(frozen=True)
class Activities:
    """One entry per kernel, memory copy, memory set and graph replay, in the order of the tables."""

    kind: np.ndarray  # index into KINDS
    name: np.ndarray  # index into names
    names: list[str]
    start_ns: np.ndarray
    end_ns: np.ndarray
    correlation: np.ndarray
    process: np.ndarray  # global process id, MISSING if unknown
    thread_index: np.ndarray  # index into threads, -1 without a launch
    threads: np.ndarray  # global ids of the threads that made API calls, ascending
    launch_row: np.ndarray  # row of the API call, NO_LAUNCH without one
    call_ns: np.ndarray  # start of each API call, by row

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def launch_ns(self) -> np.ndarray:
        """The start of the API call of each activity, 0 without one."""
        return map_blocks(self.launch_ns_of, len(self), np.int64)

    def launch_ns_of(self, rows: slice | np.ndarray) -> np.ndarray:
        """`launch_ns` of some activities, without the memory that all would take."""
        return _values_of_calls(self.call_ns, self.launch_row[rows], default=0)

    @property
    def duration_ns(self) -> np.ndarray:
        return map_blocks(lambda block: self.end_ns[block] - self.start_ns[block], len(self), np.int64)

    @property
    def thread(self) -> np.ndarray:
        """The global id of the launching thread of each activity, MISSING without a launch."""
        return np.append(self.threads, MISSING)[self.thread_index]

    @property
    def has_launch(self) -> np.ndarray:
        """Whether the API call of each activity is in the capture."""
        return self.launch_row != NO_LAUNCH


def read_activities(capture: Capture, tables: list[Columns], calls: Columns) -> Activities:
    """The activities of `tables` (the columns of each of TABLES, in that order), launched by the API `calls`.

    To save memory, the columns of activities are removed from `tables`, and "correlation" from `calls`, whose "thread"
    becomes "thread_index", an index into the threads of the activities.
    """
    counts = [len(table["start"]) for table in tables]
    kind = np.repeat(np.arange(len(KINDS), dtype=np.int8), counts)
    name, names = _names(capture, tables)
    columns = {key: concatenated([table.pop(key) for table in tables]) for key in TABLE_COLUMNS[MEMSET]}
    threads, call_thread = factorize(calls.pop("thread"))  # an index into threads
    calls["thread_index"] = call_thread = call_thread.astype(index_type(len(threads)))
    process = _with_missing_processes(capture, columns["process"], np.unique(process_of(threads)))
    launch_row = launch_rows(
        process, columns["correlation"], call_thread, threads, calls.pop("correlation"), calls["start"]
    )

    def thread_index(block: slice) -> np.ndarray:
        return _values_of_calls(call_thread, launch_row[block], default=-1)

    return Activities(
        kind, name, names, columns["start"], columns["end"], columns["correlation"], process,
        thread_index=map_blocks(thread_index, len(launch_row), call_thread.dtype),
        threads=threads,
        launch_row=launch_row,
        call_ns=calls["start"],
    )  # fmt: skip


def _values_of_calls(values: np.ndarray, launch_row: np.ndarray, default: int) -> np.ndarray:
    """The value of the API call at each `launch_row`, `default` for NO_LAUNCH."""
    if not len(values):
        return np.full(len(launch_row), default, values.dtype)
    launch_values, has_no_launch = values[launch_row], launch_row == NO_LAUNCH
    if has_no_launch.any():
        launch_values[has_no_launch] = default
    return launch_values


def _names(capture: Capture, tables: list[Columns]) -> tuple[np.ndarray, list[str]]:
    """The index of each activity's name, and the names: full ones of kernels, nsys's words for other activities."""
    copies = dict(enumerate(COPY_KINDS)) | capture.labels("ENUM_CUDA_MEMCPY_OPER")
    names_of_labels = (  # in the order of TABLES
        lambda string_ids: _kernel_names(capture, string_ids),
        lambda kinds: [f"[CUDA memcpy {copies.get(kind, f'kind {kind}')}]" for kind in kinds.tolist()],
        lambda no_labels: ["[CUDA memset]" for _ in no_labels],
        lambda graphs: [f"[CUDA graph {graph}]" for graph in graphs.tolist()],
    )
    indices, names = [], []
    for table, names_of in zip(tables, names_of_labels, strict=True):
        labels, index = factorize(table.pop("label", np.zeros(len(table["start"]), np.int64)))
        indices.append(index + len(names))
        names += names_of(labels)
    return concatenated([index.astype(index_type(len(names))) for index in indices]), names


def _kernel_names(capture: Capture, string_ids: np.ndarray) -> list[str]:
    strings = capture.strings(string_ids)
    names = [strings.get(string_id, "") for string_id in string_ids.tolist()]
    nameless = names.count("")
    if nameless:
        raise impossible(
            capture.path,
            "kernels_without_names",
            f"{nameless} of {len(names)} names of kernels are not among its strings: what ran is not known; the export"
            " is cut short or damaged: export the report again",
        )
    return names


def _with_missing_processes(capture: Capture, process: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The process of each activity. MISSING ones become the only `known` process, or stay MISSING if none is known.
    Raises TraceError if there are several."""
    if len(process) and (process == process[0]).all() and process[0] != MISSING:
        return np.broadcast_to(process[0], process.shape)  # takes no memory
    is_missing = process == MISSING
    if not is_missing.any():
        return process
    if len(known) > 1:
        raise TraceError(
            f"{capture.path}: {int(is_missing.sum())} activities name no process (globalPid) and {len(known)} processes"
            " made API calls, so correlation ids are ambiguous; export again, or profile one process at a time"
        )
    return np.where(is_missing, known[0] if len(known) else MISSING, process)
