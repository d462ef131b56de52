"""What the rules of a diagnosis look at: a scope, the calls of its host, its idle time, and kernels by purpose.

A mask or an array "by activity" is in the order of capture.activities.
"""

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from kernel_tables.idle import CAUSES, FUNCTION, HOST, HostCalls, Idle
from kernel_tables.intervals import difference
from kernel_tables.steps import Scope

OPTIMIZER = re.compile(r"(?i)^optimizer(?!.*zero_grad)")  # also PyTorch's own, Optimizer.step#AdamW.step
MIN_STEPS = 6  # to tell a slow step from chance


@dataclass(frozen=True)
class Hit:
    """What a rule found."""

    gain_ns: int  # the most that a fix saves
    message: str
    evidence: dict[str, object]
    ns_by_activity: np.ndarray = field(repr=False)  # what it counts of each activity and of the gap that this ended
    counted_ns: int | None = None  # the time that must reach the rule's share of the span; by default gain_ns


class Context:
    """What rules look at: a scope, its host's calls, its idle time, and kernels by purpose."""

    def __init__(self, scope: Scope):
        self.scope = scope
        # By activity: what the rules count to which the one that runs leaves kernels and idle time.
        self.claimed_ns = np.zeros(len(scope.activities), np.int64)

    def lacks(self, need: str) -> str:
        """Why the capture lacks what a rule needs; "" if it has that."""
        scope, steps = self.scope, len(self.scope.step_ranges)
        processes = len(np.unique(scope.range_process[scope.step_ranges]))
        # Classes of kernels that only a model launches, not an optimizer.
        of_models = "gemm", "attention", "softmax", "normalization", "embedding", "other/convolution", "other/loss"
        match need:
            case "kernels" if not scope.devices:
                return "nothing that ran was recorded"
            case "gpu" if scope.profile.is_cpu_only:
                return "the program ran on the CPU, without a GPU"
            case "calls" if not self.calls.are_known:
                lost = "the capture lacks the names or the ends of API calls"
                return f"{lost}, so it is not known what the CPU waited for"
            case "complete" if scope.is_incomplete:
                return (
                    "launches lack their kernels, or these their times, so that it is not known when the GPU was idle"
                )
            case "steps" if not scope.has_steps:
                what = f"no {scope.noun} ran in a range {scope.step_name!r}"
                return f"{what}: name the range of one step with --step-name"
            case "several steps" if processes > 1:
                return f"the capture has steps of {processes} processes side by side: capture one of them"
            case "several steps" if steps < MIN_STEPS:
                recorded = "only 1 step was" if steps == 1 else f"only {steps} steps were"
                chance = f"it takes {MIN_STEPS} to tell a slow step from chance"
                return f"{recorded} recorded, and {chance} (`kernel-tables record --steps`)"
            case "memory kinds" if not self.calls.has_memory_kinds:
                return "the capture lacks the sizes of copies and their kinds of memory"
            case "optimizer" if not any(map(OPTIMIZER.match, scope.ranges.names)):
                return "no range is named optimizer, and what an optimizer launches looks like other elementwise work"
            case "optimizer" if (self.is_update & scope.is_of_class(*of_models)).any():
                return "the optimizer's range also holds work of a model, as of a closure passed to step"
            case "communication" if not scope.is_of_class("communication").any():
                return "no communication between processes was recorded"
        return ""

    @cached_property
    def calls(self) -> HostCalls:
        return HostCalls(self.scope)

    @cached_property
    def idle(self) -> Idle:
        return Idle(self.scope, self.calls)

    @cached_property
    def time_by_activity(self) -> np.ndarray:
        """By activity: how long it ran, in full if it is partly in the span of its device, and 0 if it is outside."""
        return np.where(self.scope.is_in_span, self.scope.duration_ns, 0)

    @cached_property
    def is_update(self) -> np.ndarray:
        """By activity: whether an optimizer launched it."""
        return self.scope.is_in_range(OPTIMIZER.match) & self.scope.is_in_span & self.scope.is_kernel

    def times(self, mask: np.ndarray) -> np.ndarray:
        """By activity: how long it ran if it is in `mask`, else 0."""
        return np.where(mask, self.time_by_activity, 0)

    def time_hit(self, mask: np.ndarray, subject: str) -> Hit:
        """The hit for kernels of `mask` in the span. `subject` is the beginning of its message."""
        scope, mask = self.scope, mask & self.scope.is_in_span
        total_ns = scope.busy_ns(mask)
        evidence = {"kernels_per_step": scope.per_step(mask), "ms": scope.per_step_ms(total_ns)}
        return Hit(total_ns, f"{subject} {scope.in_words(total_ns)}", evidence, self.times(mask))

    def idle_hit(self, cause: str, waits: str) -> Hit | None:
        """The hit for the time in which a device idles between activities or only copies because of `cause`. `waits`
        says when it waits, in words."""
        scope, calls = self.scope, self.calls
        number = CAUSES.index(cause) if cause in CAUSES else len(CAUSES)  # else no call or copy is the cause
        is_copy = (calls.copy_cause == number) & scope.is_in_span
        idle_ns = np.maximum(self.idle.by_activity(cause) - self.claimed_ns, 0)
        copying = [difference(device.time_of(is_copy), device.time_of(scope.is_kernel)) for device in scope.devices]
        copying_ns = sum(times.total_ns for times in copying)
        counted_ns = int(idle_ns.sum()) + copying_ns
        evidence = {
            "gaps_per_step": round(int((idle_ns > 0).sum()) / scope.step_count, 2),
            "longest_ms": int(idle_ns.max(initial=0)) / 1e6,
        }
        message = f"the GPU waits {scope.in_words(counted_ns)} {waits}"
        functions = sorted(set(scope.profile.capture.host_functions[2]))[:3]
        if why := {HOST: scope.compiled_in_words, FUNCTION: ", ".join(functions)}.get(cause):
            message += f" ({why})"
        if cause in CAUSES:  # how often and for how long calls held up the host in the spans of the devices
            first_ns = min(device.first_ns for device in scope.devices)
            last_ns = max(device.last_ns for device in scope.devices)
            held_up = (calls.cause == number) & (calls.start_ns >= first_ns) & (calls.start_ns < last_ns)
            counts = Counter(calls.functions[function] for function in np.sort(calls.function[held_up]).tolist())
            evidence["functions_per_step"] = {name: round(n / scope.step_count, 2) for name, n in counts.items()}
            evidence["host_ms"] = scope.per_step_ms(calls.time_of(held_up).total_ns)
        if copying_ns:
            evidence["copying_alone_ms"] = scope.per_step_ms(copying_ns)
        gain_ns = max(counted_ns, self.idle.avoidable_ns.get(cause, 0) + copying_ns)
        return Hit(gain_ns, message, evidence, idle_ns + self.times(is_copy), counted_ns)
