"""The measured steps of a capture, by device: their time by parts, and what ran in them.

The parts of a step's time are computation, communication without computation, copies and fills without either, and the
time in which the device did nothing. A mask or an array "by activity" is in the order of capture.activities.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernel_tables.capture import KINDS, NONE, process_of, rows_by_value
from kernel_tables.classes import family
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import Intervals, covered_ns, difference, intersection, union
from kernel_tables.losses import share_lost, steps_without_kernels
from kernel_tables.output import duration, percent
from kernel_tables.profile import Profile

COMPUTE, COMMUNICATION, MEMORY, IDLE = "compute", "exposed communication", "exposed memory operations", "idle"
PARTS = (COMPUTE, COMMUNICATION, MEMORY, IDLE)  # of a step; not the parts of a model
NO_STEP = -1
EVALUATION = re.compile(r"(?i)(?<![a-z])(?:eval|valid|val(?![a-z])|test(?![a-z]))")  # in the name of a range
OUTSIDE = "(outside)"  # the phase and the part where no range is open inside the step


def measured_steps(profile: Profile, step_name: str) -> np.ndarray:
    """The numbers of the ranges `step_name` of all processes by time; if there is a range `measure`, only inside it."""
    ranges, window = profile.capture.ranges, "measure"
    is_step = np.array([name == step_name for name in ranges.names], bool)[ranges.name]
    if window in ranges.names:
        is_step &= profile.attribution.paths.is_inside(window)[profile.range_path]
    return np.flatnonzero(is_step)


def phases_and_parts(paths: Iterable[tuple[str, ...]], step_name: str) -> tuple[list[str], list[str]]:
    """The phase and the part of every path: the name directly inside the step, and the innermost name.

    Without a step, the outermost name is the phase."""
    inner = [path[path.index(step_name) + 1 :] if step_name in path else path for path in paths]
    return [(*path, OUTSIDE)[0] for path in inner], [(OUTSIDE, *path)[-1] for path in inner]


def clock_offsets_ns(profiles: Sequence[Profile]) -> list[int]:
    """What to add to the times of each capture to draw it on the clock of the first; not exact enough for durations.
    Clocks are aligned by the time of day at which each capture began, or if that is unknown, by the first steps (else
    the first ranges)."""
    began_ns = [profile.capture.source.began_utc_ns() for profile in profiles]
    if None not in began_ns:
        return [time_ns - began_ns[0] for time_ns in began_ns]
    starts_ns = []
    for profile in profiles:
        first = [*measured_steps(profile, "step")[:1].tolist(), 0][0]
        starts_ns.append([*profile.capture.ranges.start[first : first + 1].tolist(), 0][0])
    return [starts_ns[0] - start_ns for start_ns in starts_ns]


@dataclass(frozen=True)
class Device:
    """The activities of a device of a process that are partly in its span, by start; times are cut to the span."""

    process: int  # global id
    number: int  # of the GPU; -1 for the CPU
    rows: np.ndarray  # of the activities
    start_ns: np.ndarray
    end_ns: np.ndarray
    first_ns: int  # of the span
    last_ns: int

    @property
    def span_ns(self) -> int:
        return self.last_ns - self.first_ns

    @cached_property
    def gaps(self) -> tuple[Intervals, np.ndarray]:
        """The time between activities in which nothing ran, and the row of the activity that ended each gap."""
        reached_ns = np.maximum.accumulate(self.end_ns)
        next_ = np.flatnonzero(self.start_ns[1:] > reached_ns[:-1]) + 1
        return Intervals(reached_ns[next_ - 1], self.start_ns[next_]), self.rows[next_]

    def time_of(self, mask: np.ndarray) -> Intervals:
        """The time in which at least one activity of `mask` (over all activities) ran."""
        selected = mask[self.rows]
        return union(self.start_ns[selected], self.end_ns[selected])


class Scope:
    """The measured steps of a capture that launched something, or all of the capture if it has none."""

    FEW_LOST = 0.01  # of the launches: as at the end of many captures
    MORE_WORK = 1.05  # times the launches of other steps: a step with more does other work

    def __init__(self, profile: Profile, step_name: str = "step"):
        self.profile, self.step_name = profile, step_name
        self.activities, self.ranges = profile.capture.activities, profile.capture.ranges
        self.launch_row = profile.attribution.launch_row  # by activity: its row in capture.calls; NONE without a launch
        self.range_process = process_of(self.ranges.thread)
        step_range = profile.enclosing(step_name)  # by activity; NONE (-1) in no step, which indexes the last entry
        has_work = np.zeros(len(self.ranges) + 1, bool)
        has_work[step_range] = True
        steps = measured_steps(profile, step_name)
        self.step_ranges = steps[has_work[steps]]  # the numbers of the steps' ranges, in order of time
        step_by_range = np.full(len(has_work), NO_STEP)
        step_by_range[self.step_ranges] = np.arange(len(self.step_ranges))
        self.step_by_activity = step_by_range[step_range]  # index of the step in step_ranges; NO_STEP outside
        self.has_steps = len(self.step_ranges) > 0
        self.lost_steps = len(steps_without_kernels(profile, steps, step_name))  # which are not among step_ranges
        self.step_count = max(len(self.step_ranges), 1)  # 1 without steps, for the whole capture
        self.is_in_scope = (self.step_by_activity != NO_STEP) | (not self.has_steps)  # by activity
        self.is_kernel = self.activities.is_kernel  # or replays
        self.is_memory = ~self.is_kernel  # by activity: whether it copies or sets memory
        self.duration_ns = self.activities.end - self.activities.start  # by activity

    # What ran, in words

    @property
    def noun(self) -> str:
        """What ran: "kernels", or "operators" of a program without a GPU."""
        return "operators" if self.profile.is_cpu_only else "kernels"

    def in_words(self, ns: int) -> str:
        """The time of a step, and its share: "1.23 ms of a step (4.5 %)"."""
        unit = "a step" if self.has_steps else "the capture"
        return f"{duration(1e6 * self.per_step_ms(ns))} of {unit} ({100 * self.share(ns):.1f} %)"

    # Activities

    @cached_property
    def launch_ns(self) -> np.ndarray:
        """By activity: the start of the call that launched it, 0 without one."""
        return np.append(self.profile.capture.calls.start, 0)[self.launch_row]

    def is_of_class(self, *classes: str) -> np.ndarray:
        """By activity: whether it is a kernel (not a replay) of one of these classes, or of one below them, as
        elementwise/copy is below elementwise."""
        has_class = [name in classes or family(name) in classes for name in self.profile.activity_classes]
        return np.array([*has_class, False])[self.activities.name] & (self.activities.kind == KINDS.index("kernel"))

    def is_named(self, is_wanted: Callable[[str], object]) -> np.ndarray:
        """By activity: whether `is_wanted` accepts its name."""
        return np.array([*map(bool, map(is_wanted, self.activities.names)), False])[self.activities.name]

    def is_in_range(self, is_wanted: Callable[[str], object]) -> np.ndarray:
        """By activity: whether it was launched in a range whose name `is_wanted` accepts."""
        paths = self.profile.attribution.paths
        # By path: whether its last name is wanted; the path of no range has the name NONE, the last entry.
        marked = np.array([*map(bool, map(is_wanted, paths.names)), False])[paths.last_name]
        return paths.is_below(marked)[self.profile.attribution.path]

    @cached_property
    def is_incomplete(self) -> bool:
        """Whether so many launches or steps lack their kernels, or these their times, that a gap may have been none."""
        in_scope = self.is_in_scope & self.is_kernel
        without_time = np.count_nonzero(in_scope & ~self.profile.timed) / max(np.count_nonzero(in_scope), 1)
        return self.lost_steps > 0 or without_time + share_lost(self.profile, self.step_ranges) > self.FEW_LOST

    # Devices, and shares of their time

    @cached_property
    def devices(self) -> list[Device]:
        """The devices of each process. The span of each begins with the first step, and ends with the last step or with
        its last activity, whichever is later. Without steps, it is from the first to the last activity."""
        of_processes, device = rows_by_value(self.activities.process).values(), self.activities.device
        by_device = [rows[own] for rows in of_processes for own in rows_by_value(device[rows]).values()]
        found = [self._device(rows) for rows in by_device if (self.is_in_scope & self.profile.timed)[rows].any()]
        return [device for device in found if len(device.rows)]  # none if all activities of a device take no time

    def _device(self, rows: np.ndarray) -> Device:
        """The device whose activities are in these rows."""
        rows = rows[self.profile.timed[rows]]
        activities, is_in_scope = self.activities, self.is_in_scope[rows]
        start_ns, end_ns = activities.start[rows], activities.end[rows]
        process, number = int(activities.process[rows[0]]), int(activities.device[rows[0]])
        steps = self.step_ranges[self.range_process[self.step_ranges] == process]
        first_ns = min([int(start_ns[is_in_scope].min()), *self.ranges.start[steps].tolist()])
        last_ns = max([int(end_ns[is_in_scope].max()), *self.ranges.end[steps].tolist()])
        is_in_span = (end_ns > first_ns) & (start_ns < last_ns)
        rows, start_ns, end_ns = rows[is_in_span], start_ns[is_in_span], end_ns[is_in_span]
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns = np.maximum(start_ns[order], first_ns), np.minimum(end_ns[order], last_ns)
        return Device(process, number, rows[order], start_ns, end_ns, first_ns, last_ns)

    @cached_property
    def streams(self) -> list[np.ndarray]:
        """The rows of the activities of each stream of each device, in order of time."""
        stream = self.activities.stream
        return [device.rows[own] for device in self.devices for own in rows_by_value(stream[device.rows]).values()]

    @cached_property
    def is_in_span(self) -> np.ndarray:
        """By activity: whether it ran in the span of its device, at least partly."""
        is_in_span = np.zeros(len(self.activities), bool)
        for device in self.devices:
            is_in_span[device.rows] = True
        return is_in_span

    @cached_property
    def span_ns(self) -> int:
        """The sum of the devices' spans. Shares are shares of it."""
        return sum(device.span_ns for device in self.devices)

    @cached_property
    def parts_ns(self) -> dict[str, int]:
        """The devices' spans, summed, by PARTS: computation has priority, then communication, then memory operations.

        Raises NotConserved unless the parts of each device add up to its span, to the nanosecond."""
        is_communication, parts_ns = self.is_of_class("communication"), dict.fromkeys(PARTS, 0)
        for device in self.devices:
            compute = device.time_of(~self.is_memory & ~is_communication)
            communication = difference(device.time_of(is_communication), compute)
            memory = difference(device.time_of(self.is_memory), compute, communication)
            idle_ns = device.span_ns - union(device.start_ns, device.end_ns).total_ns
            found_ns = (compute.total_ns, communication.total_ns, memory.total_ns, idle_ns)
            if sum(found_ns) != device.span_ns:
                raise NotConserved(f"the parts {found_ns} are not the {device.span_ns} ns of device {device.number}")
            parts_ns = {part: ns + more for (part, ns), more in zip(parts_ns.items(), found_ns, strict=True)}
        return parts_ns

    def busy_ns(self, mask: np.ndarray) -> int:
        """The time in which at least one activity in `mask` ran, summed over devices; never more than the spans."""
        return sum(device.time_of(mask).total_ns for device in self.devices)

    def share(self, ns: int) -> float:
        """The time as a share of the spans."""
        return ns / self.span_ns if self.span_ns else 0.0

    def per_step(self, mask: np.ndarray) -> float:
        """The number of activities in `mask` per step, rounded."""
        return round(int(mask.sum()) / self.step_count, 1)

    def per_step_ms(self, ns: int) -> float:
        """The total `ns` as milliseconds of one step (without steps, the capture) on one device: the mean of all."""
        return ns / 1e6 / self.steps_on_devices

    @cached_property
    def steps_on_devices(self) -> int:
        """The number of steps summed over devices; at least 1."""
        process = self.range_process[self.step_ranges]
        counts = [int((process == device.process).sum()) if len(process) else 1 for device in self.devices]
        return max(sum(counts), 1)

    # Steps

    @property
    def differs_in_work(self) -> bool:
        """Whether a step launches notably more kernels than the step with the fewest."""
        step = self.step_by_activity[self.is_kernel & (self.step_by_activity != NO_STEP)]
        launches = np.bincount(step, minlength=self.step_count)
        return bool(launches.max() > self.MORE_WORK * launches.min())

    def data_waits(self, device: Device, in_evaluation: bool = False) -> Intervals:
        """The time in which a thread that runs the steps (without steps, one that launches) was in the `__next__` of
        PyTorch's DataLoader, within the device's span.

        Other threads may wait for batches that nobody needs yet, so they do not count. What an evaluation waits for is
        no waiting of a training step, and counts only with `in_evaluation`, alone."""
        ranges, (rows, is_evaluation) = self.ranges, self._waits
        is_own = (is_evaluation == in_evaluation) & (self.range_process[rows] == device.process)
        if self.has_steps:
            threads = ranges.thread[self.step_ranges]
        else:
            calls = self.profile.capture.calls
            threads = np.append(calls.threads[calls.thread], NONE)[self.launch_row[device.rows]]
        rows = rows[is_own & np.isin(ranges.thread[rows], threads)]
        return union(np.maximum(ranges.start[rows], device.first_ns), np.minimum(ranges.end[rows], device.last_ns))

    @cached_property
    def _waits(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of all ranges of the `__next__` of a DataLoader, and whether each is in an evaluation: in a range
        named so, or between the starts of two steps (or before or after all) where the program waits for more batches
        and launches more than usual, as in a validation pass."""
        paths, ranges = self.profile.attribution.paths, self.ranges
        is_next = [name.startswith("enumerate(DataLoader)") for name in ranges.names]
        rows = np.flatnonzero(np.array(is_next, bool)[ranges.name])
        is_named = np.array([*map(bool, map(EVALUATION.search, paths.names)), False])[paths.last_name]
        around = np.unique(self.profile.range_path[self.step_ranges])
        while around.any():  # steps of an evaluation, as test_step, are the steps that are asked for
            is_named[around] = False
            around = paths.parent[around]
        is_evaluation = paths.is_below(is_named)[self.profile.range_path[rows]]
        if not self.has_steps:
            return rows, is_evaluation
        starts_ns, launched = ranges.start[self.step_ranges], self.launch_row != NONE
        launch_ns = np.where(launched, self.launch_ns, self.activities.start)[self.is_kernel]
        after = np.searchsorted(starts_ns, ranges.start[rows], "right")
        of_steps = np.isin(ranges.thread[rows], ranges.thread[self.step_ranges])
        waits = np.bincount(after[of_steps], minlength=len(starts_ns) + 1)
        launches = np.bincount(np.searchsorted(starts_ns, launch_ns, "right"), minlength=len(waits))
        more = (waits > np.median(waits[1:])) & (launches > self.MORE_WORK * np.median(launches[1:]))
        return rows, is_evaluation | more[after]

    @cached_property
    def step_before_ns(self) -> float | None:
        """The time of a step before recording began, in ns: the median that `record` noted. Recording lengthens steps.

        None if it is unknown, if it is not shorter than a recorded step, if `record` did not name the steps, or if the
        steps before may have done other work: the recorded steps differ in their work, or keep the GPU busy for longer.
        """
        before_s, recorded_step = self.profile.recorded_window.get("step_before_s"), "step"
        if not (isinstance(before_s, float) and self.has_steps and self.step_name == recorded_step):
            return None
        busy_ns = 0 if self.profile.is_cpu_only else self.span_ns - self.parts_ns[IDLE]
        is_shorter = busy_ns <= 1e9 * before_s * self.steps_on_devices < self.span_ns
        return 1e9 * before_s if is_shorter and not self.differs_in_work else None


@dataclass(frozen=True)
class StepTime:
    """The time of a step (without steps, of the capture): the devices' spans divided by the number of steps on them."""

    steps: int  # 0 if the capture has none
    lost_steps: int  # how many more have no kernel, though the host launched some
    ns: float
    parts_ns: dict[str, float]  # by name; they add up to `ns`; without those that take no time
    idle_ns: dict[str, float]  # by name of a part: how much of it is time in which the device did nothing
    before_ns: float | None = None  # the time of a step before recording, Scope.step_before_ns
    on_cpu: bool = False

    @property
    def _mean(self) -> str:
        """What it is the mean of: ", mean of 3", ", mean of 2 of 32 steps"; "" for one step and for the capture."""
        if self.lost_steps:
            return f", mean of {self.steps} of {self.steps + self.lost_steps} steps"
        return f", mean of {self.steps}" if self.steps > 1 else ""

    @property
    def title(self) -> str:
        """The subject of the time: "a step, mean of 3"."""
        return f"a step{self._mean}" if self._mean else "the step" if self.steps else "the capture"

    @property
    def before_in_words(self) -> str:
        """ "; 28.1 ms before recording", if that is known."""
        return f"; {duration(self.before_ns)} before recording" if self.before_ns else ""

    @property
    def percent_base(self) -> str:
        """What the percentages of findings refer to: a step before recording, or if its time is not known, this. On a
        CPU always this, since recording lengthens what it finds, too."""
        if not self.steps:
            return " of the capture"
        return " of a step before recording" if self.before_ns and not self.on_cpu else " of a recorded step"

    @property
    def sentence(self) -> str:
        """The time and its parts in one sentence."""
        parts = [f"{name} {duration(ns)} ({percent(ns / self.ns)})" for name, ns in self.parts_ns.items()]
        of_steps = f" (wall time{self._mean}{self.before_in_words})"
        return f"{'a step' if self.steps else 'the capture'} takes {duration(self.ns)}{of_steps}: {', '.join(parts)}"


def step_time(scope: Scope) -> StepTime | None:
    """The time of a step by parts; None if nothing ran. On a processor, all time in a DataLoader is waiting, even what
    it computes there. Raises NotConserved unless the parts add up to the time."""
    if not scope.span_ns:
        return None
    on_cpu, overhead = scope.profile.is_cpu_only, union(*scope.profile.capture.overhead)
    is_computation = ~scope.is_memory & ~scope.is_of_class("communication")
    waiting_ns = loading_ns = overhead_ns = evaluating_ns = 0
    for device in scope.devices:
        waits, busy = scope.data_waits(device), union(device.start_ns, device.end_ns)
        waiting_ns += difference(waits, busy).total_ns
        if on_cpu:
            loading_ns += intersection(device.time_of(is_computation), waits).total_ns
            continue
        evaluating_ns += difference(scope.data_waits(device, in_evaluation=True), busy, waits, overhead).total_ns
        overhead_ns += int(covered_ns(difference(overhead, busy, waits), device.first_ns, device.last_ns))
    waiting, idle = ("waiting for data", "other host time") if on_cpu else ("idle, waiting for data", "idle otherwise")
    idle_ns = {
        waiting: waiting_ns,
        "idle, the profiler's own time": overhead_ns,
        "idle, an evaluation waiting for data": evaluating_ns,
    }
    named_ns, count = sum(idle_ns.values()), scope.steps_on_devices
    idle_ns[idle if on_cpu or named_ns else "idle"] = scope.parts_ns[IDLE] - named_ns
    parts_ns = {
        "operators" if on_cpu else "kernels": scope.parts_ns[COMPUTE] - loading_ns,
        "communication alone": scope.parts_ns[COMMUNICATION],
        "copies alone": scope.parts_ns[MEMORY],
        **idle_ns,
        waiting: waiting_ns + loading_ns,
    }
    if sum(parts_ns.values()) != scope.span_ns or min(parts_ns.values()) < 0:
        raise NotConserved(f"{parts_ns} are not the {scope.span_ns} ns of the steps")
    parts_ns, idle_ns = ({name: ns / count for name, ns in one.items() if ns} for one in (parts_ns, idle_ns))
    steps, lost, before_ns = len(scope.step_ranges), scope.lost_steps, scope.step_before_ns
    return StepTime(steps, lost, scope.span_ns / count, parts_ns, idle_ns, before_ns, scope.profile.is_cpu_only)
