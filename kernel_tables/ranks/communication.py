"""The cost of communication by step, device and rank, whether the ranks fit together, and whether the parameters of
each layer were gathered before its computation could begin, as FSDP should do it.

A layer is an instance of a range (`block`) in the forward or the backward pass. Its computation can begin when that of
the layer before has ended on the device. If the device then computes nothing, and goes on only after an all-gather has
ended, the layer waited for it. An all-gather that still runs when computation goes on was for a later layer. On a
processor, Gloo's thread notes the end of a collective shortly after the waiting thread has gone on.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from kernel_tables import columns, errors, intervals
from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.devices import PARTS
from kernel_tables.kineto.capture_schema import CPU_DEVICE
from kernel_tables.ranks.collectives import ALL_GATHER, collectives, unmatched_steps
from kernel_tables.ranks.ranks import OVERLAPPED, DeviceSteps, RankTrace, device_steps

KEY = ["rank", "device", "step"]
PART_COLUMNS = dict(
    zip(PARTS, ("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns"), strict=True)
)  # fmt: skip
SUMS = ("bytes", "transfer_ns", "waiting_ns")
COLUMNS = columns.column_names("communication")


def communication(ranks: Sequence[RankTrace], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device and measured step.

    Columns: rank, device, step; step_ns = compute_ns + exposed_communication_ns + exposed_memory_ns + idle_ns;
    communication_ns (while at least one collective ran), overlapped_ns (of that, while a kernel computed); collectives
    (their number); bytes, transfer_ns, waiting_ns (sums over the collectives; missing where one of them is).
    Raises NotConserved if the parts are not the step.
    """
    tables = [_device_table(steps) for steps in device_steps(ranks, step_name)]
    if not tables:  # no device has a step in which anything ran
        return pd.DataFrame(columns=COLUMNS, dtype="Int64")
    by_step = collectives(ranks, step_name).groupby(KEY)
    sums = by_step[list(SUMS)].agg(lambda column: column.sum(skipna=False))
    table = pd.concat(tables, ignore_index=True)
    table = table.join(by_step.size().rename("collectives"), on=KEY).join(sums, on=KEY)
    table["collectives"] = table["collectives"].fillna(0).astype("int64")
    return table[COLUMNS]


def _device_table(steps: DeviceSteps) -> pd.DataFrame:
    parts = steps.parts_ns()
    exposed, overlapped = parts["exposed communication"], parts[OVERLAPPED]
    part_columns = {column: parts[part] for part, column in PART_COLUMNS.items()}
    return pd.DataFrame(
        {
            "rank": steps.rank.number,
            "device": steps.device,
            "step": np.arange(len(exposed)),
            "step_ns": steps.length_ns,
            **part_columns,
            "communication_ns": exposed + overlapped,
            "overlapped_ns": overlapped,
        }
    )


def findings_of_ranks(ranks: Sequence[RankTrace], step_name: str = "step") -> list[errors.Finding]:
    """The findings about several ranks together; none for a single rank."""
    return [*_steps_differ(ranks, step_name)] or [*_collectives_differ(ranks, step_name)]


def _steps_differ(ranks: Sequence[RankTrace], step_name: str) -> Iterator[errors.Finding]:
    """Processes without steps do not count if another process is in the same capture."""
    processes = Counter(rank.trace for rank in ranks)
    steps = {rank.number: len(rank.steps(step_name)) for rank in ranks}
    steps = {rank.number: steps[rank.number] for rank in ranks if steps[rank.number] or processes[rank.trace] == 1}
    usual = max(steps.values(), default=0)
    fewer = [f"rank {number}: {count}" for number, count in steps.items() if count != usual]
    if fewer:
        yield errors.finding(
            "ranks_differ",
            f"ranks hold up to {usual} ranges {step_name!r}, others fewer ({', '.join(fewer)}): steps of ranks are"
            " matched by number, so they would be compared with other steps; capture the same steps of all ranks",
        )


def _collectives_differ(ranks: Sequence[RankTrace], step_name: str) -> Iterator[errors.Finding]:
    steps = unmatched_steps(ranks, step_name) if ranks else []
    if steps:
        yield errors.finding(
            "collectives_differ",
            f"ranks ran different collectives in steps {', '.join(map(str, steps[:5]))}: transfer cannot be"
            " distinguished from waiting for the slowest rank there; capture all ranks of the run",
        )


GATHER_COLUMNS = ["rank", "device", "step", "pass", "layer", "begin_ns", "end_ns", "gathers", "lateness_ns"]


def lateness_of_gathers(
    ranks: Sequence[RankTrace], step_name: str = "step", passes: Sequence[str] = ("forward", "backward"),
    layer: str = "block",
) -> pd.DataFrame:  # fmt: skip
    """One row per rank, device, step, pass and layer, of steps with all-gathers.

    Columns: rank, device, step; pass (name of its range); layer (number in the pass, in the order in which layers are
    computed); begin_ns (when its computation could begin, since the step began on this device), end_ns (when it ended);
    gathers (all-gathers that ended in between); lateness_ns (the part of this in which
    nothing was computed and one of them had not ended).
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
    return pd.DataFrame(rows, columns=GATHER_COLUMNS)


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
        idle = intervals.gaps(computed, begin_ns, end_ns)
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
    """From the start of a gap in computation to the end of the last all-gather in it; 0 without one. With `noted_late`,
    an all-gather also counts as ended if it ran in the gap, and for at most a tenth of that time afterwards."""
    in_gap = np.minimum(ended_ns, resumed_ns) - np.maximum(started_ns, gap_ns)
    allowed = np.maximum(in_gap, 0) // 10 if noted_late else 0
    inside = ended_ns[(ended_ns > gap_ns) & (ended_ns <= resumed_ns + allowed)]
    return int(min(inside.max(), resumed_ns)) - gap_ns if len(inside) else 0
