"""Whether the parameters of each layer were gathered before its computation could begin, as FSDP should do it.

A layer is an instance of a range (`block`) in the forward or the backward pass. Its computation can begin when that of
the layer before has ended on the device. If the device then computes nothing, and goes on only after an all-gather has
ended, the layer waited for it. An all-gather that still runs when computation goes on was for a later layer. On a
processor, Gloo's thread notes the end of a collective shortly after the waiting thread has gone on.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from kernel_tables.attribution.ranges import NONE
from kernel_tables.intervals import gaps
from kernel_tables.kineto.capture_schema import CPU_DEVICE
from kernel_tables.ranks.collectives import ALL_GATHER, collectives
from kernel_tables.ranks.ranks import RankTrace
from kernel_tables.ranks.steps import DeviceSteps, device_steps

COLUMNS = ["rank", "device", "step", "pass", "layer", "begin_ns", "end_ns", "gathers", "lateness_ns"]


def lateness_of_gathers(
    ranks: Sequence[RankTrace], step_name: str = "step", passes: Sequence[str] = ("forward", "backward"),
    layer: str = "block",
) -> pd.DataFrame:  # fmt: skip
    """One row per rank, device, step, pass and layer, of steps with all-gathers.

    Columns: rank, device, step; pass (name of its range); layer (number in the pass, in the order in which layers are
    computed); begin_ns (when its computation could begin, since the step began on this device), end_ns (when it ended);
    gathers (all-gathers that ended in between); lateness_ns (of this, while nothing was computed until one of them had
    ended).
    """
    table = collectives(ranks, step_name)
    table = table[table["operation"] == ALL_GATHER]
    rows = []
    for steps in device_steps(ranks, step_name):
        here = table[(table["rank"] == steps.rank.number) & (table["device"] == steps.device)]
        for step, gathered in here.groupby("step"):
            start_ns = gathered["start_ns"].to_numpy("int64") + steps.windows.begin_ns[step]
            gathers = (start_ns, start_ns + gathered["duration_ns"].to_numpy("int64"))
            rows += [row for name in passes for row in _layers(steps, int(step), name, layer, *gathers)]
    return pd.DataFrame(rows, columns=COLUMNS)


def _layers(
    steps: DeviceSteps, step: int, name: str, layer: str, started_ns: np.ndarray, ended_ns: np.ndarray
) -> Iterator[tuple]:
    """The rows of the layers of one pass; all-gathers ran from `started_ns` to `ended_ns`."""
    trace, activities, origin_ns = steps.rank.trace, steps.scope.activities, int(steps.windows.begin_ns[step])
    of_pass = steps.is_here & (steps.step == step) & (trace.enclosing(name) != NONE)
    if not of_pass.any():
        return
    instance = np.where(of_pass & steps.is_compute, trace.enclosing(layer), NONE)
    computed = steps.during(steps.is_compute)
    begin_ns, number = int(activities.start_ns[of_pass].min()), 0
    for rows in _in_order(instance, activities.start_ns):
        end_ns = int(activities.end_ns[rows].max())
        if end_ns <= begin_ns:  # all of it ran during the layer before
            continue
        ended = int(((ended_ns > begin_ns) & (ended_ns <= end_ns)).sum())
        idle = gaps(computed, begin_ns, end_ns)
        late_ns = sum(
            lateness(started_ns, ended_ns, *gap, noted_late=steps.device == CPU_DEVICE)
            for gap in zip(idle.start_ns.tolist(), idle.end_ns.tolist(), strict=True)
        )
        yield (
            steps.rank.number, steps.device, step, name, number, begin_ns - origin_ns, end_ns - origin_ns,
            ended, late_ns,
        )  # fmt: skip
        begin_ns, number = end_ns, number + 1


def _in_order(instance: np.ndarray, start_ns: np.ndarray) -> list[np.ndarray]:
    """The rows of every instance, in the order of their first starts."""
    rows = np.flatnonzero(instance != NONE)
    rows = rows[np.argsort(start_ns[rows], kind="stable")]
    return [rows[instance[rows] == one] for one in dict.fromkeys(instance[rows].tolist())]


def lateness(
    started_ns: np.ndarray, ended_ns: np.ndarray, gap_ns: int, resumed_ns: int, *, noted_late: bool = False
) -> int:
    """From the begin of a gap in computation to the end of the last all-gather in it; 0 without one. With `noted_late`,
    an all-gather also counts as ended if it ran in the gap, and for at most a tenth of that time afterwards."""
    in_gap = np.minimum(ended_ns, resumed_ns) - np.maximum(started_ns, gap_ns)
    allowed = np.maximum(in_gap, 0) // 10 if noted_late else 0
    inside = ended_ns[(ended_ns > gap_ns) & (ended_ns <= resumed_ns + allowed)]
    return int(min(inside.max(), resumed_ns)) - gap_ns if len(inside) else 0
