"""Shared input of the rules of a diagnosis: a scope, the gaps of its GPUs by cause, and kernels by purpose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution.arrays import each_block, map_narrow_blocks
from kernel_tables.attribution.launches import NO_LAUNCH
from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.attention import Attention, attention_of
from kernel_tables.diagnosis.blocking import Blocking
from kernel_tables.diagnosis.idle import GPU, HOST, UNKNOWN, Idle, held_up_by, idle_of
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.intervals import covered_ns, difference
from kernel_tables.kernel_classes.categories import is_fp32_without_tensor_cores

if TYPE_CHECKING:
    from kernel_tables.counters.joining import Filling

OPTIMIZER = re.compile(r"(?i)^optimizer(?!.*zero_grad)")  # also PyTorch's own, Optimizer.step#AdamW.step
GRAPH_LAUNCH = re.compile(r"(cuda|cu|hip)GraphLaunch")
BACKWARD = re.compile(r"(?i)backward")
# Classes of kernels that only a model launches, not an optimizer.
MODEL_CLASSES = ("gemm", "attention", "softmax", "normalization", "embedding", "other/convolution", "other/loss")
CAST = re.compile(r"(?i)(?:b?float(?:16|8\w*)|half)_copy_kernel|copy_kernel.*LoadWithCast")
MANY_OPTIMIZER_KERNELS = 20  # of a step; clipping gradients before a fused optimizer takes six


@dataclass(frozen=True)
class RuleHit:
    """The result of a rule that reports a finding."""

    gain_ns: int  # the most that a fix saves
    message: str
    evidence: dict[str, object]
    ns_by_activity: np.ndarray = field(repr=False)  # what it counts of each activity and of the gap that this ended


def _add(sums: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """Adds each value to the sum of its row. No row occurs twice."""

    def add(block: slice) -> None:
        sums[rows[block]] += values[block]

    each_block(add, len(rows))


class DiagnosisContext:
    """Shared input of the rules. A mask or an array "by activity" is in the order of trace.gpu_activities."""

    def __init__(self, scope: Scope, filling: Filling | None = None):
        """`filling` says how full launches make the GPU; None without counters."""
        self.scope, self.filling = scope, filling
        self.blocking = Blocking(scope)
        self.claimed_ns = np.zeros(len(scope.activities), np.int64)  # by activity: the sum of others' ns_by_activity

    def with_claims(self, hits: Sequence[RuleHit]) -> DiagnosisContext:
        """A copy in which the time of `hits` is claimed, so that rules do not count it again. The copy shares what this
        context has cached so far."""
        if not hits:
            return self
        context = copy(self)
        first, *others = (hit.ns_by_activity for hit in hits)
        context.claimed_ns = sum((ns.astype(np.int64) for ns in others), start=first)  # a single one needs no copy
        return context

    @cached_property
    def is_mostly_replayed(self) -> bool:
        """Whether replays of CUDA graphs launched at least half of the activities."""
        calls, launch_row = self.scope.calls, self.scope.activities.launch_row
        replays = [function for function, name in enumerate(calls.functions) if GRAPH_LAUNCH.match(name)]
        if not replays:
            return False
        is_replayed = np.isin(calls.function[launch_row[launch_row != NO_LAUNCH]], replays)
        return 2 * np.count_nonzero(is_replayed) >= max(len(launch_row), 1)

    @cached_property
    def idle_by_device(self) -> list[Idle]:
        """The gaps of each device by cause."""
        return [idle_of(self.scope, self.blocking, device) for device in self.scope.devices]

    def idle_by_activity(self, *causes: str) -> np.ndarray:
        """By activity: the idle time of these causes (default: all) that it ended."""
        dtype = np.result_type(np.int32, *(idle.dtype for idle in self.idle_by_device))
        idle_ns = np.zeros(len(self.scope.activities), dtype)
        for idle in self.idle_by_device:
            for cause in idle.ns_by_cause.keys() & set(causes or idle.ns_by_cause):
                _add(idle_ns, idle.next_row, idle.ns_by_cause[cause])
        return idle_ns

    def avoidable_idle_ns(self, cause: str) -> int:
        """The idle time between activities that would at most be gone if calls of this cause took no time."""
        return sum(int(idle.avoidable_ns[cause].sum()) for idle in self.idle_by_device if cause in idle.avoidable_ns)

    def idle_at_edges_ns(self, cause: str) -> int:
        """The idle time before the first activity of a device, if a call of this cause is in it, and that after the
        last activity likewise; summed over devices."""
        total_ns = 0
        for device in self.scope.devices:
            edges = device.edges
            held_up_ns = covered_ns(held_up_by(self.scope, self.blocking, device, cause), edges.start_ns, edges.end_ns)
            total_ns += int(edges.lengths_ns[held_up_ns > 0].sum())
        return total_ns

    def has_idle(self, cause: str) -> bool:
        return any(cause in idle.ns_by_cause for idle in self.idle_by_device)

    @cached_property
    def unblocked_idle_ns(self) -> np.ndarray:
        """By activity: the idle time that it ended, if it was launched in time, or if the host only launched meanwhile
        (even if an earlier call is the cause)."""
        idle_ns = self.idle_by_activity(GPU)
        for idle in self.idle_by_device:
            late_ns = sum(ns for cause, ns in idle.ns_by_cause.items() if cause not in (GPU, HOST, UNKNOWN))
            idle_ns[idle.next_row] += np.where(idle.only_launches, late_ns, 0)
        return idle_ns

    def exposed_ns(self, mask: np.ndarray) -> int:
        """The time in which activities of `mask` ran and no kernel did, summed over devices."""
        if not mask.any():
            return 0
        devices, is_kernel = self.scope.devices, self.scope.is_kernel
        return sum(difference(device.time_of(mask), device.time_of(is_kernel)).total_ns for device in devices)

    @cached_property
    def time_by_activity(self) -> np.ndarray:
        """By activity: how long it ran, in full if it is partly in the span of its device, and 0 if it is outside."""
        activities, is_in_span = self.scope.activities, self.scope.is_in_span

        def time_ns(block: slice) -> np.ndarray:
            return np.where(is_in_span[block], activities.end_ns[block] - activities.start_ns[block], 0)

        return map_narrow_blocks(time_ns, len(activities))

    @cached_property
    def is_update(self) -> np.ndarray:
        """By activity: whether an optimizer launched it itself, not its closure: in the optimizer's range, after the
        backward passes in that range. Lightning always passes a closure, which runs the model inside this range."""
        scope, trace = self.scope, self.scope.trace
        launch_ns, is_update = scope.activities.launch_ns, np.zeros(len(scope.activities), bool)
        in_backward = scope.is_in_range(BACKWARD.search, inside=OPTIMIZER.match)
        for name in filter(OPTIMIZER.match, trace.range_paths.names):
            instance = trace.enclosing(name)  # NONE (-1) indexes the last entry below
            last_ns = np.full(len(trace.range_arrays) + 1, -1)  # by range: its last launch in a backward pass
            np.maximum.at(last_ns, instance[in_backward], launch_ns[in_backward])
            is_update |= (instance != NONE) & (launch_ns > last_ns[instance])
        return is_update & ~in_backward & scope.is_in_span & scope.is_kernel

    @cached_property
    def is_unfused_update(self) -> np.ndarray:
        """By activity: whether it is a kernel of a non-fused optimizer; none if a step has few of them."""
        mask = self.is_update & ~self.scope.is_of_class("optimizer")
        return mask if mask.sum() >= MANY_OPTIMIZER_KERNELS * self.scope.step_count else np.zeros_like(mask)

    @cached_property
    def has_model_in_optimizer(self) -> bool:
        """Whether kernels of a model cannot be distinguished from those of the optimizer in whose range they run."""
        return bool((self.is_update & self.scope.is_of_class(*MODEL_CLASSES)).any())

    @cached_property
    def attention(self) -> Attention:
        """The attention in separate kernels."""
        return attention_of(self.scope, self.scope.is_in_range(BACKWARD.search))

    @cached_property
    def is_cast(self) -> np.ndarray:
        """By activity: whether it is a kernel that only converts between types."""
        is_cast = [bool(CAST.search(name)) for name in self.scope.activities.names]
        return self.scope.with_names(is_cast) & self.scope.is_of_class("elementwise") & self.scope.is_in_span

    @cached_property
    def is_fp32_matmul(self) -> np.ndarray:
        """By activity: whether it is a matrix multiply in fp32 without tensor cores."""
        is_fp32 = [is_fp32_without_tensor_cores(name) for name in self.scope.activities.names]
        return self.scope.with_names(is_fp32) & self.scope.is_of_class("gemm") & self.scope.is_in_span
