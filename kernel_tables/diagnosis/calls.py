"""The CUDA API calls of a capture by what they do to the host: launch, wait, allocate, free, copy."""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_tables import global_ids
from kernel_tables.attribution import arrays, capture_arrays
from kernel_tables.intervals import Intervals, union
from kernel_tables.reading import schema

LAUNCH, WAIT, ALLOCATION, FREEING, COPY, OTHER = range(6)
KIND_PATTERNS = (  # the first that matches the beginning of a name decides; LAUNCH takes asynchronous copies from COPY
    (LAUNCH, r"cu(da)?(Launch|GraphLaunch|Memset|Memcpy\w*Async)"),
    (COPY, r"cu(da)?Memcpy"),
    (WAIT, r"cu(da)?(Device|Stream|Event|Ctx|Thread)Synchronize"),
    (
        FREEING,
        r"cuda(Free(?!\w*Async)|HostUnregister)|cuMem(Free(?!\w*Async)|Unmap|Release|AddressFree|HostUnregister)",
    ),
    (
        ALLOCATION,
        r"cuda(Malloc(?!\w*Async)|Host(Alloc|Register))"
        r"|cuMem(Alloc(?!\w*Async)|Create|Map|SetAccess|Address|Host)",
    ),
)
HIP_PREFIX = r"^hip(Ext)?(Module)?"  # hipExtModuleLaunchKernel launches as cudaLaunchKernel does
NO_CALL = -1


@dataclass(frozen=True)
class Calls:
    """Every API call, in the order of the table RUNTIME."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    thread_index: np.ndarray  # index into threads
    threads: np.ndarray  # global ids
    kind: np.ndarray  # LAUNCH, WAIT, ALLOCATION, FREEING, COPY or OTHER
    function: np.ndarray  # index into functions
    functions: list[str]

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def process(self) -> np.ndarray:
        """The global id of the process of each call."""
        processes = arrays.compact(global_ids.process_of(self.threads))  # has no strides if all are equal
        return processes[self.thread_index] if processes.strides[0] else np.broadcast_to(processes[:1], len(self))

    def time_of(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one call of `mask` was open."""
        if mask.all():  # often, in a capture of one process; saves copies
            return union(self.start_ns, self.end_ns)
        return union(self.start_ns[mask], self.end_ns[mask])

    def previous(self, rows: np.ndarray) -> np.ndarray:
        """The row of the previous call on the same thread as each of `rows`, NO_CALL for the first."""
        previous = np.full(len(rows), NO_CALL)
        for positions, thread_rows in arrays.positions_by_key(self.thread_index[rows], self.thread_index):
            order = thread_rows[np.argsort(self.start_ns[thread_rows], kind="stable")]
            rank = np.empty(len(self), np.int32)  # by call, set for those of this thread
            rank[order] = np.arange(len(order))
            previous[positions] = np.append(order, NO_CALL)[rank[rows[positions]] - 1]  # -1 indexes NO_CALL
        return previous


def kind_of(function: str) -> int:
    """The kind of a function of the CUDA runtime or driver, or of HIP, by its name."""
    function = re.sub(HIP_PREFIX, "cuda", function)
    return next((kind for kind, pattern in KIND_PATTERNS if re.match(pattern, function)), OTHER)


def read_calls(trace: capture_arrays.CaptureArrays) -> Calls:
    """The calls of a trace. If the capture lacks their ends, they have no duration; without names, all are OTHER."""
    columns = trace.columns[schema.RUNTIME]
    end_ns, name_id, name_by_id = trace.call_functions()
    ids, function = arrays.factorize(name_id)
    functions = [name_by_id.get(number, "") for number in ids.tolist()]
    function = function.astype(np.min_scalar_type(len(functions)))
    kinds = np.array([kind_of(name) for name in functions], np.int8)
    threads = trace.gpu_activities.threads
    return Calls(columns["start"], end_ns, columns["thread_index"], threads, kinds[function], function, functions)
