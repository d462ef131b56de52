"""The time of a step by parts: every nanosecond of the steps' wall time is in one part."""

from dataclasses import dataclass

from kernel_tables.diagnosis import host_rules
from kernel_tables.diagnosis.devices import COMMUNICATION, COMPUTE, IDLE, MEMORY, Device
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.diagnosis.step_rules import differ_in_work
from kernel_tables.errors import NotConserved
from kernel_tables.intervals import gaps, intersection, union
from kernel_tables.units import duration, percent

RECORDED_STEP = "step"  # the range of a step that `record` opens
WAITING = "waiting"  # for data
NAMES_ON_GPU = {  # by part
    COMPUTE: "kernels",
    COMMUNICATION: "communication alone",
    MEMORY: "copies alone",
    WAITING: "idle, waiting for data",
    IDLE: "idle otherwise",
}
# On a processor, all time in a DataLoader is waiting, even what it computes there: the rule waiting_for_data counts it
# like this, too.
NAMES_ON_CPU = NAMES_ON_GPU | {COMPUTE: "operators", WAITING: "waiting for data", IDLE: "other host time"}


@dataclass(frozen=True)
class StepTime:
    """The time of a step (without steps, of the capture): the devices' spans divided by the number of steps on them."""

    steps: int  # 0 if the capture has none
    ns: float
    parts_ns: dict[str, float]  # by name; they add up to `ns`; without those that take no time
    idle_ns: dict[str, float]  # by name of a part: how much of it is time in which the device did nothing
    before_ns: float | None = None  # the time of a step before recording, as step_before_ns gives it

    @property
    def busy_share(self) -> float:
        """The share of the time in which a device did something."""
        return 1 - sum(self.idle_ns.values()) / self.ns

    @property
    def title(self) -> str:
        """The subject of the time: "a step, mean of 3"."""
        if not self.steps:
            return "the capture"
        return "the step" if self.steps == 1 else f"a step, mean of {self.steps}"

    @property
    def duration(self) -> str:
        return duration(self.ns)

    @property
    def before_in_words(self) -> str:
        """ "; 28.1 ms before recording", if that is known."""
        return f"; {duration(self.before_ns)} before recording" if self.before_ns else ""

    @property
    def percent_base(self) -> str:
        """What the percentages of findings refer to: " of a step before recording", or "" if to this time itself."""
        return " of a step before recording" if self.before_ns else ""

    @property
    def sentence(self) -> str:
        """The time and its parts in one sentence."""
        parts = [f"{name} {duration(ns)} ({percent(ns / self.ns)})" for name, ns in self.parts_ns.items()]
        of_steps = f" (wall time{f', mean of {self.steps}' if self.steps > 1 else ''}{self.before_in_words})"
        return f"{'a step' if self.steps else 'the capture'} takes {duration(self.ns)}{of_steps}: {', '.join(parts)}"


def step_time(scope: Scope) -> StepTime | None:
    """The time of a step; None if nothing ran. Raises NotConserved unless its parts add up to it."""
    if not scope.span_ns:
        return None
    on_cpu = scope.trace.is_cpu_only
    idle_waiting_ns = sum(_waiting_ns(scope, device) for device in scope.devices)
    loading_ns = sum(_loading_ns(scope, device) for device in scope.devices) if on_cpu else 0
    idle_otherwise_ns = scope.parts_ns[IDLE] - idle_waiting_ns
    total_ns = scope.parts_ns | {WAITING: idle_waiting_ns + loading_ns, IDLE: idle_otherwise_ns}
    total_ns[COMPUTE] -= loading_ns
    if sum(total_ns.values()) != scope.span_ns or min(total_ns.values()) < 0:
        raise NotConserved(f"{total_ns} are not the {scope.span_ns} ns of the steps")
    names_on_gpu = NAMES_ON_GPU if idle_waiting_ns else NAMES_ON_GPU | {IDLE: "idle"}
    names = NAMES_ON_CPU if on_cpu else names_on_gpu
    count = scope.steps_on_devices
    parts_ns = {name: total_ns[part] / count for part, name in names.items() if total_ns[part]}
    idle_ns = ((WAITING, idle_waiting_ns), (IDLE, idle_otherwise_ns))
    idle_ns_by_name = {names[part]: ns / count for part, ns in idle_ns if ns}
    return StepTime(len(scope.step_ranges), scope.span_ns / count, parts_ns, idle_ns_by_name, step_before_ns(scope))


def step_before_ns(scope: Scope) -> float | None:
    """The time of a step before recording began, in ns: the median that `record` noted. Recording lengthens steps.

    None if it is unknown, if it is not shorter than a recorded step, if `record` did not name the steps, or if the
    steps before may have done other work: the recorded steps differ in their work, or keep the GPU busy for longer.
    """
    before_s = scope.trace.recorded_window.get("step_before_s")
    if not (isinstance(before_s, float) and scope.has_steps and scope.step_name == RECORDED_STEP):
        return None
    busy_ns = 0 if scope.trace.is_cpu_only else scope.span_ns - scope.parts_ns[IDLE]
    is_shorter = busy_ns <= 1e9 * before_s * scope.steps_on_devices < scope.span_ns
    return 1e9 * before_s if is_shorter and not differ_in_work(scope) else None


def _waiting_ns(scope: Scope, device: Device) -> int:
    """The idle time of a device during which its program waited for data."""
    waits = host_rules.data_waits(scope, device)
    if not len(waits):
        return 0  # without long arrays
    idle = gaps(union(device.start_ns, device.end_ns), device.first_ns, device.last_ns)
    return intersection(idle, waits).total_ns


def _loading_ns(scope: Scope, device: Device) -> int:
    """Without a GPU, the time in which operators ran to get the next batch, as a DataLoader without workers does."""
    compute = device.time_of(~scope.is_memory & ~scope.is_of_class("communication"))
    return intersection(compute, host_rules.data_waits(scope, device)).total_ns
