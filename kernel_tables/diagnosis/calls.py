"""The CUDA API calls of a capture by what they do to the host: launch, wait, allocate, free, copy."""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_tables.attribution.arrays import compact, factorize, matched
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.intervals import Intervals, union
from kernel_tables.reading.global_ids import process_of
from kernel_tables.reading.schema import RUNTIME

LAUNCH, WAIT, ALLOCATION, FREEING, COPY, OTHER = range(6)
KINDS = (
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
OF_HIP = r"^hip(Ext)?(Module)?"  # hipExtModuleLaunchKernel launches as cudaLaunchKernel does
NO_CALL = -1


@dataclass(frozen=True)
class Calls:
    """Every API call, in the order of the table; ns."""

    start_ns: np.ndarray
    end_ns: np.ndarray
    thread: np.ndarray  # global id
    kind: np.ndarray  # LAUNCH, WAIT, ALLOCATION, FREEING, COPY or OTHER
    function: np.ndarray  # index into functions
    functions: list[str]

    def __len__(self) -> int:
        return len(self.start_ns)

    @cached_property
    def process(self) -> np.ndarray:
        return compact(process_of(self.thread))

    def during(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one call of `mask` was open."""
        if mask.all():  # of one process, most often
            return union(self.start_ns, self.end_ns)
        return union(self.start_ns[mask], self.end_ns[mask])

    def previous(self, rows: np.ndarray) -> np.ndarray:
        """The row of the previous call on the same thread as each of `rows`, NO_CALL for the first."""
        before = np.full(len(rows), NO_CALL)
        for here, in_calls in matched(self.thread[rows], self.thread) if len(rows) else ():
            order = in_calls[np.argsort(self.start_ns[in_calls], kind="stable")]
            place = np.empty(len(self), np.int32)
            place[order] = np.arange(len(order))
            before[here] = np.append(order, NO_CALL)[place[rows[here]] - 1]
        return before


def kind_of(function: str) -> int:
    """The kind of a function of the CUDA runtime or driver, or of HIP, by its name."""
    function = re.sub(OF_HIP, "cuda", function)
    return next((kind for kind, pattern in KINDS if re.match(pattern, function)), OTHER)


def read_calls(trace: CaptureArrays) -> Calls:
    """The calls of a trace; without a duration and of kind OTHER if the capture lacks their ends and names."""
    columns = trace.columns[RUNTIME]
    end_ns, name_id, names = trace.call_functions()
    ids, function = factorize(name_id)
    functions = [names.get(number, "") for number in ids.tolist()]
    kinds = np.array([kind_of(name) for name in functions], np.int8)
    return Calls(columns["start"], end_ns, columns["thread"], kinds[function], function, functions)
