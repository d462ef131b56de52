"""The activities of one GPU of one process over a span of time, and the gaps between them."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_tables.errors import NotConserved
from kernel_tables.intervals import NOTHING, Intervals, difference, union

COMPUTE, COMMUNICATION, MEMORY, IDLE = "compute", "exposed communication", "exposed memory operations", "idle"
PARTS = (COMPUTE, COMMUNICATION, MEMORY, IDLE)  # of a span; not the parts of a model
IDLE_SHARE = 0.15  # nsys-ai's threshold for idle time


@dataclass(frozen=True)
class Device:
    """The activities of a GPU of a process within its span, ordered by start. Their times are cut to the span."""

    process: int  # global id
    number: int  # of the GPU
    rows: np.ndarray  # of the activities in CaptureArrays.gpu_activities
    start_ns: np.ndarray
    end_ns: np.ndarray
    first_ns: int  # of the span
    last_ns: int

    @property
    def span_ns(self) -> int:
        return self.last_ns - self.first_ns

    @property
    def gaps(self) -> tuple[Intervals, np.ndarray]:
        """The time between activities in which nothing ran, and the row of the activity that ended each gap."""
        is_disjoint = (self.start_ns[1:] >= self.end_ns[:-1]).all()
        reached_ns = self.end_ns if is_disjoint else np.maximum.accumulate(self.end_ns)
        ends_gap = self.start_ns[1:] > reached_ns[:-1]
        ends_gap = slice(None) if ends_gap.all() else ends_gap  # copies of long arrays take time and memory
        return Intervals(reached_ns[:-1][ends_gap], self.start_ns[1:][ends_gap]), self.rows[1:][ends_gap]

    @cached_property
    def edges(self) -> Intervals:
        """Two intervals of the span, which may be empty: before the first activity and after the last one."""
        start_ns, end_ns = int(self.start_ns.min()), int(self.end_ns.max())
        return Intervals(np.array([self.first_ns, end_ns]), np.array([start_ns, self.last_ns]))

    def time_of(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one activity of `mask` (over all activities) ran."""
        if not mask.any():
            return NOTHING
        if mask.all() or (selected := mask[self.rows]).all():
            return union(self.start_ns, self.end_ns)
        return union(self.start_ns[selected], self.end_ns[selected])

    def parts_ns(self, is_memory: np.ndarray, is_communication: np.ndarray) -> dict[str, int]:
        """The span by PARTS: computation has priority, then communication, then memory operations.

        `is_memory` and `is_communication` are over all activities. Raises NotConserved unless the parts add up to the
        span, to the nanosecond.
        """
        compute = self.time_of(~is_memory & ~is_communication)
        communication = difference(self.time_of(is_communication), compute)
        memory = difference(self.time_of(is_memory), compute, communication)
        idle_ns = self.span_ns - union(self.start_ns, self.end_ns).total_ns
        parts_ns = (compute.total_ns, communication.total_ns, memory.total_ns, idle_ns)
        parts = dict(zip(PARTS, parts_ns, strict=True))
        if sum(parts.values()) != self.span_ns:
            raise NotConserved(f"{parts} are not the {self.span_ns} ns of device {self.number}")
        return parts


def device_of(process: int, number: int, rows: np.ndarray, start_ns, end_ns, first_ns: int, last_ns: int) -> Device:
    """The device with those of its activities, `rows` with `start_ns` and `end_ns`, that are in the span at least
    partly."""
    is_in_span = (end_ns > first_ns) & (start_ns < last_ns)
    if not is_in_span.all():
        rows, start_ns, end_ns = rows[is_in_span], start_ns[is_in_span], end_ns[is_in_span]
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        rows, start_ns, end_ns = rows[order], start_ns[order], end_ns[order]
    if len(rows) and (start_ns[0] < first_ns or end_ns.max() > last_ns):  # else the columns are used as they are
        start_ns, end_ns = np.maximum(start_ns, first_ns), np.minimum(end_ns, last_ns)
    return Device(process, number, rows, start_ns, end_ns, first_ns, last_ns)
