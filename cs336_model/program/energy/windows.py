"""Windows of seconds in which a model steps, or nothing runs, with the device's energy counter read at both ends."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from cs336_model import ranges
from cs336_model.program.device import gpu_uuid, synchronize
from cs336_model.program.energy.counters import EnergyCounter, measured_tick_s
from cs336_model.program.gpu_state import GpuState, gpu_state
from cs336_model.program.process_cost import Progress
from cs336_model.program.steps import PhaseClock, Subject, run_steps

IDLE, STEPS = "idle", "steps"
STATE = ("temperature_c", "sm_clock_mhz", "memory_clock_mhz", "throttle_reasons")


@dataclass(frozen=True)
class Plan:
    """How many windows of steps there are, and how many seconds each lasts at least. One before and one after them is
    idle and as long: the model is on the device, and nothing runs."""

    windows: int
    least_s: float


@dataclass(frozen=True)
class Meter:
    """A device's energy counter, and how its time passes."""

    device: torch.device
    counter: EnergyCounter
    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep

    def state(self) -> GpuState:
        """Clocks and temperature now; all None on a processor."""
        return gpu_state(gpu_uuid(self.device))


def counted_energy(subject: Subject, meter: Meter, plan: Plan, progress: Progress) -> dict[str, Any]:
    """The counter's name, its tick in seconds, and the windows in their order."""

    def step() -> None:
        run_steps(subject, 1, PhaseClock(subject.device, ranges.MEASURE, progress))

    tick_s = measured_tick_s(meter.counter, meter.now, meter.sleep)
    windows = [idle_window(meter, plan.least_s)]
    windows += [window_of_steps(meter, plan.least_s, step) for _ in range(plan.windows)]
    windows.append(idle_window(meter, plan.least_s))
    return {"counter": meter.counter.name, "tick_s": tick_s, "windows": windows}


def idle_window(meter: Meter, least_s: float) -> dict[str, Any]:
    """So many seconds in which nothing runs."""

    def wait() -> int:
        meter.sleep(least_s)
        return 0

    return _window(meter, IDLE, wait)


def window_of_steps(meter: Meter, least_s: float, step: Callable[[], None]) -> dict[str, Any]:
    """Steps, each of which waits for the device, until so many seconds have passed."""

    def work() -> int:
        steps, until = 0, meter.now() + least_s
        while meter.now() < until:
            step()
            steps += 1
        return steps

    return _window(meter, STEPS, work)


def _window(meter: Meter, kind: str, work: Callable[[], int]) -> dict[str, Any]:
    """Kind, seconds, microjoules and steps of what `work` does, which gives its steps; the device's state at both ends,
    read outside the window. The device is waited for at both ends."""
    before = meter.state()
    synchronize(meter.device)
    begin_uj, begin_s = meter.counter.microjoules(), meter.now()
    steps = work()
    synchronize(meter.device)
    end_uj, end_s = meter.counter.microjoules(), meter.now()
    after = meter.state()
    counted = {"kind": kind, "seconds": end_s - begin_s, "microjoules": end_uj - begin_uj, "steps": steps}
    ends = {"begin": before, "end": after}
    return counted | {end: {name: getattr(state, name) for name in STATE} for end, state in ends.items()}
