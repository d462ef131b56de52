"""The CUDA API calls of a capture by what they do to the host: launch, wait, allocate, free, copy."""

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_tables.attribution.arrays import factorize
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
        return process_of(self.thread)

    def during(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one call of `mask` was open."""
        return union(self.start_ns[mask], self.end_ns[mask])

    @cached_property
    def previous(self) -> np.ndarray:
        """The row of the previous call on the same thread, NO_CALL for the first."""
        thread = factorize(self.thread)[1]
        order = np.lexsort((self.start_ns, thread))
        before = np.full(len(order), NO_CALL, np.int64)
        same = thread[order][1:] == thread[order][:-1]
        before[order[1:][same]] = order[:-1][same]
        return before


def kind_of(function: str) -> int:
    """The kind of a function of the CUDA runtime or driver, or of HIP, by its name."""
    function = re.sub(OF_HIP, "cuda", function)
    return next((kind for kind, pattern in KINDS if re.match(pattern, function)), OTHER)


def read_calls(trace: CaptureArrays) -> Calls:
    """The calls of a trace; without a duration and of kind OTHER if the capture lacks their ends and names."""
    columns = trace.columns[RUNTIME]
    end_ns, name_id, names = trace.capture.call_functions()
    ids, function = factorize(name_id)
    functions = [names.get(number, "") for number in ids.tolist()]
    kinds = np.array([kind_of(name) for name in functions], np.int8)
    return Calls(columns["start"], end_ns, columns["thread"], kinds[function], function, functions)
