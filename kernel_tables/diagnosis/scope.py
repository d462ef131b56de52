"""The scope of a diagnosis: the measured steps of a capture, or all of it if it has none, by GPU and process."""

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution.activities import COUNTS_AS_KERNEL, KINDS
from kernel_tables.attribution.arrays import factorize, index_type, map_blocks, positions_by_group
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.steps import measured_steps
from kernel_tables.diagnosis.calls import Calls, read_calls
from kernel_tables.diagnosis.devices import PARTS, Device, device_of
from kernel_tables.kernel_classes.categories import family
from kernel_tables.reading import schema, times
from kernel_tables.units import duration

NO_STEP = -1
NamePredicate = Callable[[str], object]


class _Steps(NamedTuple):
    ranges: np.ndarray  # Scope.step_ranges
    by_activity: np.ndarray  # Scope.step_by_activity


class Scope:
    """The arrays that rules look at. A mask or an array "by activity" is in the order of trace.gpu_activities."""

    def __init__(self, trace: CaptureArrays, step_name: str = "step"):
        self.trace, self.step_name = trace, step_name
        trace.expect_details()  # devices, streams and functions are then read with the other columns
        self.activities = trace.gpu_activities

    @cached_property
    def calls(self) -> Calls:
        return read_calls(self.trace)

    @cached_property
    def has_calls(self) -> bool:
        """Whether start, end and function of each API call are known."""
        return bool(len(self.calls)) and all(self.calls.functions) and self.trace.capture.has(schema.RUNTIME, "end")

    @property
    def compiled_in_words(self) -> str:
        """What torch.compile compiled in the window of `record`: "torch.compile compiled 2 graphs"; "" if nothing."""
        count = self.trace.recorded_window.get("compilations")
        return f"torch.compile compiled {count} graph{'s' if count != 1 else ''}" if isinstance(count, int) else ""

    @property
    def noun(self) -> str:
        """What ran, in words: "kernels", or "operators" of a program without a GPU."""
        return "operators" if self.trace.is_cpu_only else "kernels"

    @property
    def step_ranges(self) -> np.ndarray:
        """The indices (into trace.range_arrays) of the measured steps that launched something, in order of time."""
        return self._steps.ranges

    @property
    def has_steps(self) -> bool:
        return len(self.step_ranges) > 0

    @property
    def step_count(self) -> int:
        """The number of steps; 1 if there are none, for the whole capture."""
        return max(len(self.step_ranges), 1)

    @property
    def step_by_activity(self) -> np.ndarray:
        """By activity: the index of its step in `step_ranges`; NO_STEP outside."""
        return self._steps.by_activity

    @cached_property
    def _steps(self) -> _Steps:
        step_range = self.trace.enclosing(self.step_name)  # by activity; -1 in no step, which indexes the last entry
        has_work = np.zeros(len(self.trace.range_arrays) + 1, bool)  # by range
        has_work[step_range] = True
        steps = measured_steps(self.trace, self.step_name)
        steps = steps[has_work[steps]]
        step_by_range = np.full(len(has_work), NO_STEP, index_type(len(steps)))
        step_by_range[steps] = np.arange(len(steps))
        # In blocks, on several threads, since a capture may have millions of activities.
        by_activity = map_blocks(lambda block: step_by_range[step_range[block]], len(step_range), step_by_range.dtype)
        return _Steps(steps, by_activity)

    @property
    def is_in_scope(self) -> np.ndarray:
        """By activity: whether a step launched it; without steps, always."""
        return self.step_by_activity != NO_STEP if self.has_steps else np.ones(len(self.activities), bool)

    @cached_property
    def devices(self) -> list[Device]:
        """The GPUs of each process. The span of each begins with the first step, and ends with the last step or with
        its last activity, whichever is later. Without steps, the span is from its first to its last activity."""
        is_in_scope = self.is_in_scope
        devices = [self._device(rows, is_in_scope) for rows in self._rows_of_devices() if is_in_scope[rows].any()]
        return [device for device in devices if len(device.rows)]  # none if all activities of a device take no time

    def _rows_of_devices(self) -> list[np.ndarray]:
        """The rows of the activities of each device of each process."""
        devices, device_index = factorize(self.trace.places["device"])
        processes, process_index = factorize(self.activities.process)
        if len(devices) == len(processes) == 1:
            return [np.arange(len(self.activities), dtype=np.int32)]
        pairs, pair_index = factorize(process_index.astype(np.int64) * len(devices) + device_index)
        return [rows.astype(np.int32, copy=False) for rows in positions_by_group(pair_index, len(pairs))]

    def _device(self, rows: np.ndarray, is_in_scope: np.ndarray) -> Device:
        """The device whose activities are in these rows."""
        activities = self.activities
        selection = slice(None) if len(rows) == len(activities) else rows  # a copy takes time and memory
        start_ns, end_ns, is_in_scope = (
            activities.start_ns[selection],
            activities.end_ns[selection],
            is_in_scope[selection],
        )
        first_ns = int(start_ns.min(where=is_in_scope, initial=times.NEVER_NS))
        last_ns = int(end_ns.max(where=is_in_scope, initial=0))
        process, number = int(activities.process[rows[0]]), int(self.trace.places["device"][rows[0]])
        span = self._widened_to_steps(process, first_ns, last_ns)
        return device_of(process, number, rows, start_ns, end_ns, *span)

    def _widened_to_steps(self, process: int, first_ns: int, last_ns: int) -> tuple[int, int]:
        """The span from `first_ns` to `last_ns`, widened to the steps of a process."""
        ranges = self.trace.range_arrays
        steps = self.step_ranges[ranges.process[self.step_ranges] == process]
        return min([first_ns, *ranges.start_ns[steps].tolist()]), max([last_ns, *ranges.end_ns[steps].tolist()])

    def streams(self, device: Device) -> list[np.ndarray]:
        """The rows of the activities of each stream of a device, in order of time."""
        distinct, stream = factorize(self.trace.places["stream"])
        if len(distinct) == 1:
            return [device.rows]
        positions_by_stream = positions_by_group(stream[device.rows], len(distinct))
        return [device.rows[positions] for positions in positions_by_stream if len(positions)]

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
        """The devices' spans, summed, by PARTS: computation, exposed communication, exposed copies and fills, idle."""
        is_communication = self.is_of_class("communication")
        parts_by_device = [device.parts_ns(self.is_memory, is_communication) for device in self.devices]
        return {part: sum(parts[part] for parts in parts_by_device) for part in PARTS}

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
        """The total `ns` as milliseconds of one step on one device, the mean of all steps and devices. Without steps,
        the capture counts as one."""
        return ns / 1e6 / self.steps_on_devices

    @cached_property
    def steps_on_devices(self) -> int:
        """The number of steps summed over devices; at least 1."""
        process = self.trace.range_arrays.process[self.step_ranges]
        counts = [int((process == device.process).sum()) if len(process) else 1 for device in self.devices]
        return max(sum(counts), 1)

    @cached_property
    def processes_with_steps(self) -> int:
        return len(np.unique(self.trace.range_arrays.process[self.step_ranges]))

    def in_words(self, ns: int) -> str:
        """The time of a step, and its share: "1.23 ms of a step (4.5 %)"."""
        unit = "a step" if self.has_steps else "the capture"
        return f"{duration(1e6 * self.per_step_ms(ns))} of {unit} ({100 * self.share(ns):.1f} %)"

    @cached_property
    def is_kernel(self) -> np.ndarray:
        return COUNTS_AS_KERNEL[self.activities.kind]

    @cached_property
    def is_memory(self) -> np.ndarray:
        """By activity: whether it copies or sets memory."""
        return ~self.is_kernel

    def is_of_class(self, *classes: str) -> np.ndarray:
        """By activity: whether it is a kernel (not a replay) of one of these classes, or of one below them, as
        elementwise/copy is below elementwise."""
        has_class = [name in classes or family(name) in classes for name in self.trace.activity_classes]
        return self.with_names(has_class) & (self.activities.kind == KINDS.index("kernel"))

    def is_in_range(self, is_wanted: NamePredicate, inside: NamePredicate | None = None) -> np.ndarray:
        """By activity: whether it was launched in a range whose name `is_wanted` accepts. With `inside`, such a range
        counts only if around it is another one whose name `inside` accepts."""
        paths = self.trace.range_paths
        is_path_wanted = self._has_last_name(is_wanted)
        if inside is not None:
            is_path_wanted &= paths.is_below(self._has_last_name(inside))[paths.parent]  # [parent]: strictly inside
        return paths.is_below(is_path_wanted)[self.trace.activity_path]

    def _has_last_name(self, is_wanted: NamePredicate) -> np.ndarray:
        """By path: whether its last name is wanted."""
        paths = self.trace.range_paths
        # paths.name is -1 for the path of no range, which indexes the last entry.
        by_name = np.array([*(bool(is_wanted(name)) for name in paths.names), False])
        return by_name[paths.name]

    def with_names(self, is_wanted: list[bool]) -> np.ndarray:
        """By activity: whether its name is wanted. `is_wanted` has one entry for each name in activities.names."""
        by_name, name = np.array(is_wanted, bool), self.activities.name
        if not by_name.any():
            return np.zeros(len(name), bool)
        return map_blocks(lambda block: by_name[name[block]], len(name), bool)
