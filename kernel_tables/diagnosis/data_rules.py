"""The time in which a program waits for its data, by the ranges that PyTorch's DataLoader opens itself."""

import re

import numpy as np

from kernel_tables.diagnosis.context import DiagnosisContext, RuleHit
from kernel_tables.diagnosis.devices import Device
from kernel_tables.diagnosis.host_rules import CAUSE_SHARE
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.intervals import Intervals, covered_ns, intersection, union

NEXT_BATCH = re.compile(r"enumerate\(DataLoader\)")


def data_waits(scope: Scope, device: Device) -> Intervals:
    """The time in which a thread that runs the steps was in a DataLoader's `__next__`, within the device's span.

    Other threads may wait for batches that nobody needs yet, so they do not count.
    """
    ranges, names = scope.trace.range_arrays, scope.trace.range_paths.names
    codes = [code for code, name in enumerate(names) if NEXT_BATCH.match(name)]
    if len(scope.steps):
        threads = np.unique(ranges.thread[scope.steps])
    else:
        threads = np.unique(scope.activities.thread[device.rows])
    mine = np.isin(ranges.name, codes) & np.isin(ranges.thread, threads) & (ranges.process == device.process)
    span = union(np.array([device.first_ns]), np.array([device.last_ns]))
    return intersection(union(ranges.start_ns[mine], ranges.end_ns[mine]), span)


def _before_first(waits: Intervals, device: Device) -> int:
    """The time from the first wait in a device's span to its first activity, 0 without a wait before it."""
    return max(int(device.start_ns[0] - waits.start_ns[0]), 0) if len(waits) else 0


def waiting_for_data(context: DiagnosisContext) -> RuleHit | None:
    """On a GPU only its idle time counts: a wait while it computes costs nothing. The launch after a wait is a part of
    it. The wait before the first activity counts if the others cost time.
    """
    scope, weight = context.scope, np.zeros(len(context.scope.activities), np.int64)
    gain_ns, first_ns, longest_ns, batches = 0, 0, 0, 0
    for device in scope.devices:
        waits = data_waits(scope, device)
        if not len(waits):
            continue
        idle, next_row = device.gaps
        waited_ns = covered_ns(waits, idle.start_ns, idle.end_ns)
        launching_ns = idle.end_ns - scope.activities.launch_ns[next_row]
        weight[next_row] += np.where(waited_ns > 0, np.minimum(idle.lengths_ns, waited_ns + launching_ns), 0)
        gain_ns += waits.total_ns if scope.trace.is_cpu_only else int(weight[next_row].sum())
        first_ns += 0 if scope.trace.is_cpu_only else int(_before_first(waits, device))
        batches += len(waits)
        longest_ns = max(longest_ns, int(waits.lengths_ns.max(initial=0)))
    if scope.share(gain_ns) < CAUSE_SHARE:
        return None
    gain_ns += first_ns
    waiter = "the program" if scope.trace.is_cpu_only else "the GPU"
    message = f"{waiter} waits {scope.in_words(gain_ns)} for the next batch of a DataLoader"
    evidence = {"batches_per_step": round(batches / scope.count, 2), "longest_ms": longest_ns / 1e6}
    return RuleHit(gain_ns, message, evidence, weight)
