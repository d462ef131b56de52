"""Whether the trace of CUDA ended before the program did, by facts that hold whatever the program does in its steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernel_tables import global_ids
from kernel_tables.intervals import Intervals, gaps, union
from kernel_tables.reading import schema

if TYPE_CHECKING:
    from kernel_tables.attribution.capture_arrays import CaptureArrays

MUCH_LONGER = 2  # times the longest time without a CUDA call in any step before


def ended_early(trace: CaptureArrays, steps: np.ndarray, kernels: list[int]) -> str | None:
    """The fact, in words, that shows that calls of CUDA in the last of these `steps` were lost; None if there is none.

    `steps` are ranges of one process in order of time, `kernels` the numbers of their kernels. Fewer kernels than in
    other steps prove no loss: an optimizer may call its closure less often. But ranges are recorded independently of
    calls. So calls are missing in two cases:

    - A range opens in a step after the last call, and all earlier ranges of its name launched kernels.
    - The last step with calls has fewer kernels than any before, and the time from its last call to its end is more
      than MUCH_LONGER times the longest time without a call in any step before.
    """
    ranges, process = trace.range_arrays, trace.range_arrays.process[steps[0]]
    calls = _calls(trace, process)
    if not len(calls):
        return None
    last_ns = int(calls.end_ns[-1])
    is_of_process = ranges.process == process
    later = np.flatnonzero(is_of_process & (ranges.start_ns >= last_ns))
    later = later[ranges.start_ns[later] < ranges.end_ns[steps].max()]
    for code in np.unique(ranges.name[later]).tolist():
        name = trace.range_names[code]
        earlier = np.flatnonzero((ranges.name == code) & is_of_process & (ranges.start_ns < last_ns))
        has_launched = np.isin(earlier, trace.enclosing(name))
        may_have_lost = ranges.end_ns[earlier] > last_ns  # still open at the last call, so they need not have launched
        if has_launched.any() and (has_launched | may_have_lost).all():
            return f"a range {name!r} opens after the last CUDA call, and all earlier ones launched kernels"
    last = int(np.searchsorted(ranges.start_ns[steps], last_ns)) - 1  # the last step with calls
    if last < 1 or kernels[last] >= min(kernels[:last]):
        return None
    bounds = zip(ranges.start_ns[steps[:last]].tolist(), ranges.end_ns[steps[:last]].tolist(), strict=True)
    usual_ns = max(int(gaps(calls, *step_bounds).lengths_ns.max(initial=0)) for step_bounds in bounds)
    if int(ranges.end_ns[steps[last]]) - last_ns <= MUCH_LONGER * usual_ns:
        return None
    return f"one ends more than {MUCH_LONGER} times as long after the last CUDA call as the others ever go without one"


def _calls(trace: CaptureArrays, process: int) -> Intervals:
    """The time in which the process is in a call of CUDA."""
    is_of_process = global_ids.process_of(trace.call_threads) == process
    starts_ns, ends_ns = trace.columns[schema.RUNTIME]["start"], trace.call_functions().end_ns
    return union(starts_ns[is_of_process], ends_ns[is_of_process])
