"""What a diagnosis looks at: the measured steps of a capture, on each GPU of each process; all of it without steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from kernel_tables.attribution.activities import COUNTS_AS_KERNEL, KINDS
from kernel_tables.attribution.arrays import factorize
from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.steps import measured_steps
from kernel_tables.diagnosis.calls import Calls, read_calls
from kernel_tables.diagnosis.devices import PARTS, Device, device_of
from kernel_tables.kernel_classes.categories import family
from kernel_tables.reading.schema import RUNTIME

NO_STEP = -1


class Scope:
    """The arrays that rules look at. A mask or an array "by activity" is in the order of trace.gpu_activities."""

    def __init__(self, trace: CaptureArrays, step_name: str = "step"):
        self.trace, self.step_name = trace, step_name
        self.activities = trace.gpu_activities

    @cached_property
    def calls(self) -> Calls:
        return read_calls(self.trace)

    @cached_property
    def has_calls(self) -> bool:
        """Whether it is known when each API call began and ended, and what it was."""
        return bool(len(self.calls)) and all(self.calls.functions) and self.trace.capture.has(RUNTIME, "end")

    @cached_property
    def steps(self) -> np.ndarray:
        """The numbers of the ranges that are measured steps, in order of time."""
        steps = measured_steps(self.trace, self.step_name)
        has_work = np.zeros(len(self.trace.range_arrays) + 1, bool)  # the last entry serves activities of no step
        has_work[self.trace.enclosing(self.step_name)] = True
        return steps[has_work[steps]]

    @property
    def count(self) -> int:
        """How many steps there are; 1, the capture, where there are none."""
        return max(len(self.steps), 1)

    @cached_property
    def step(self) -> np.ndarray:
        """By activity: the number of its step, from 0; NO_STEP outside."""
        number = np.full(len(self.trace.range_arrays) + 1, NO_STEP)  # the last entry serves activities of no range
        number[self.steps] = np.arange(len(self.steps))
        return number[self.trace.enclosing(self.step_name)]

    @cached_property
    def devices(self) -> list[Device]:
        """The GPUs, each from the start of the first step to the end of the last one, or of what that launched; without
        steps, from the first start to the last end of what ran on it."""
        found = self.activities
        device = self.trace.places["device"]
        key = factorize(found.process)[1].astype(np.int64) * (1 << 16) + device
        looked_at = self.step != NO_STEP if len(self.steps) else np.ones(len(found), bool)
        devices = []
        for code in factorize(key)[0].tolist():
            rows = np.flatnonzero(key == code)
            mine = rows[looked_at[rows]]
            if len(mine):
                first, last = int(found.start_ns[mine].min()), int(found.end_ns[mine].max())
                process, number = int(found.process[rows[0]]), int(device[rows[0]])
                first, last = self._with_steps(process, first, last)
                times = found.start_ns[rows], found.end_ns[rows]
                devices.append(device_of(process, number, rows, *times, first, last))
        return devices

    def _with_steps(self, process: int, first_ns: int, last_ns: int) -> tuple[int, int]:
        """These bounds, widened to the steps of a process."""
        ranges = self.trace.range_arrays
        steps = self.steps[ranges.process[self.steps] == process]
        return min([first_ns, *ranges.start_ns[steps].tolist()]), max([last_ns, *ranges.end_ns[steps].tolist()])

    @cached_property
    def inside(self) -> np.ndarray:
        """By activity: whether it lies in the span of its device."""
        inside = np.zeros(len(self.activities), bool)
        for device in self.devices:
            inside[device.rows] = True
        return inside

    @cached_property
    def span_ns(self) -> int:
        """The sum of the devices' spans: what every share is of."""
        return sum(device.span_ns for device in self.devices)

    @cached_property
    def parts_ns(self) -> dict[str, int]:
        """The devices' spans by PARTS."""
        of_devices = [device.parts_ns(self.is_memory, self.of_class("communication")) for device in self.devices]
        return {part: sum(parts[part] for parts in of_devices) for part in PARTS}

    def busy_ns(self, mask: np.ndarray) -> int:
        """The time in which at least one activity of MASK ran, by device; never more than the spans."""
        return sum(device.during(mask).total_ns for device in self.devices)

    def share(self, ns: int) -> float:
        return ns / self.span_ns if self.span_ns else 0.0

    def per_step_ms(self, ns: int) -> float:
        """Milliseconds of one step (of the capture, where there are no steps) on one device, the mean of all."""
        return ns / 1e6 / self.steps_on_devices

    @cached_property
    def steps_on_devices(self) -> int:
        """How many steps the devices ran, one of each for every device of a process; at least 1."""
        process = self.trace.range_arrays.process[self.steps]
        of_devices = [int((process == device.process).sum()) if len(process) else 1 for device in self.devices]
        return max(sum(of_devices), 1)

    @cached_property
    def processes_with_steps(self) -> int:
        """How many processes the measured steps are of."""
        return len(np.unique(self.trace.range_arrays.process[self.steps]))

    def in_words(self, ns: int) -> str:
        """ "1.23 ms of a step (4.5 %)"."""
        whole = "a step" if len(self.steps) else "the capture"
        return f"{self.per_step_ms(ns):.3g} ms of {whole} ({100 * self.share(ns):.1f} %)"

    @cached_property
    def is_kernel(self) -> np.ndarray:
        return COUNTS_AS_KERNEL[self.activities.kind]

    @cached_property
    def is_memory(self) -> np.ndarray:
        """By activity: whether it copies or sets memory and is no kernel."""
        return ~self.is_kernel

    def of_class(self, *families: str) -> np.ndarray:
        """By activity: whether it is a kernel of one of these classes, or of one below them (elementwise/copy)."""
        names = [one in families or family(one) in families for one in self.trace.activity_classes]
        return self._by_name(names) & (self.activities.kind == KINDS.index("kernel"))

    def named(self, found: list[bool]) -> np.ndarray:
        """By activity: what FOUND, by index of its name, says."""
        return self._by_name(found)

    def within(self, is_wanted: Callable[[str], object], inside: Callable[[str], object] | None = None) -> np.ndarray:
        """By activity: whether it was launched in a range that IS_WANTED by its name; with INSIDE, only ranges that lie
        in one that INSIDE accepts."""
        paths = self.trace.range_paths
        wanted = self._names_fit(is_wanted)
        if inside is not None:
            wanted &= paths.below(self._names_fit(inside))[paths.parent]
        return paths.below(wanted)[self.trace.activity_path]

    def _names_fit(self, is_wanted: Callable[[str], object]) -> np.ndarray:
        """By path: whether its last name is wanted."""
        paths = self.trace.range_paths
        fits = np.array([bool(is_wanted(name)) for name in paths.names] + [False])  # the last entry serves no range
        return fits[paths.name]

    def _by_name(self, found: list[bool]) -> np.ndarray:
        return np.append(np.array(found, bool), False)[self.activities.name]
