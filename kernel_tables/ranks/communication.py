"""The cost of communication by step, device and rank; whether the ranks fit together; and whether the parameters of
each layer were gathered before its computation could begin, as FSDP should do it.

A layer is an instance of a range (`block`) in the forward or the backward pass. Its computation can begin when that of
the previous layer has ended on the device. If the device then computes nothing, and continues only after an all-gather
has ended, the layer waited for it. An all-gather that still runs when computation continues was for a later layer. On a
processor, Gloo's thread records the end of a collective shortly after the waiting thread has continued.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from kernel_tables import columns, errors, intervals
from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.devices import PARTS
from kernel_tables.intervals import Intervals
from kernel_tables.kineto.capture_schema import CPU_DEVICE
from kernel_tables.ranks.collectives import ALL_GATHER, collectives, unmatched_steps
from kernel_tables.ranks.ranks import OVERLAPPED, DeviceSteps, RankTrace, device_steps

KEY_COLUMNS = ["rank", "device", "step"]
PART_COLUMNS = dict(
    zip(PARTS, ("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns"), strict=True)
)  # fmt: skip
SUM_COLUMNS = ("bytes", "transfer_ns", "waiting_ns")
COLUMNS = columns.column_names("communication")
GATHER_COLUMNS = ["rank", "device", "step", "pass", "layer", "begin_ns", "end_ns", "gathers", "lateness_ns"]


def communication(ranks: Sequence[RankTrace], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device and measured step; kernel_tables/columns.py describes the columns.

    A sum over the collectives is missing if there are none, or it is missing for one of them. Raises NotConserved if
    the parts of a step do not add up to it.
    """
    tables = [_device_table(steps) for steps in device_steps(ranks, step_name)]
    if not tables:  # no device has a step in which anything ran
        return pd.DataFrame(columns=COLUMNS, dtype="Int64")
    by_step = collectives(ranks, step_name).groupby(KEY_COLUMNS)
    sums = by_step[list(SUM_COLUMNS)].agg(lambda column: column.sum(skipna=False))
    table = pd.concat(tables, ignore_index=True)
    table = table.join(by_step.size().rename("collectives"), on=KEY_COLUMNS).join(sums, on=KEY_COLUMNS)
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
    """The findings about several ranks: on their numbers of steps, or if these are equal, on their collectives."""
    return list(_steps_differ(ranks, step_name)) or list(_collectives_differ(ranks, step_name))


def _steps_differ(ranks: Sequence[RankTrace], step_name: str) -> Iterator[errors.Finding]:
    """A finding if some ranks have fewer steps than others. A process without steps does not count if its capture
    contains several processes."""
    process_counts = Counter(rank.trace for rank in ranks)
    step_counts = {rank: len(rank.steps(step_name)) for rank in ranks}
    counts = {rank.number: count for rank, count in step_counts.items() if count or process_counts[rank.trace] == 1}
    most = max(counts.values(), default=0)
    fewer = [f"rank {number}: {count}" for number, count in counts.items() if count != most]
    if fewer:
        yield errors.finding(
            "ranks_differ",
            f"ranks hold up to {most} ranges {step_name!r}, others fewer ({', '.join(fewer)}): steps of ranks are"
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


def lateness_of_gathers(
    ranks: Sequence[RankTrace], step_name: str = "step", passes: Sequence[str] = ("forward", "backward"),
    layer: str = "block",
) -> pd.DataFrame:  # fmt: skip
    """One row per rank, device, step, pass and layer, for steps with all-gathers. A layer whose computation ended
    before that of the previous layer has no row.

    Columns: rank, device, step; pass (name of its range); layer (number in the pass, in the order of computation);
    begin_ns (when its computation could begin) and end_ns (when it ended), since the step began on this device; gathers
    (all-gathers that ended in between); lateness_ns (the time in between in which nothing was computed and one of them
    had not ended).
    """
    table = collectives(ranks, step_name)
    table = table[table["operation"] == ALL_GATHER]
    rows = []
    for steps in device_steps(ranks, step_name):
        of_device = (table["rank"] == steps.rank.number) & (table["device"] == steps.device)
        for step, gathers in table[of_device].groupby("step"):
            start_ns = gathers["start_ns"].to_numpy("int64") + steps.windows.begin_ns[step]
            gather_times = Intervals(start_ns, start_ns + gathers["duration_ns"].to_numpy("int64"))
            for pass_name in passes:
                rows += _layer_rows(steps, int(step), pass_name, layer, gather_times)
    return pd.DataFrame(rows, columns=GATHER_COLUMNS)


def _layer_rows(steps: DeviceSteps, step: int, pass_name: str, layer: str, gathers: Intervals) -> Iterator[tuple]:
    """The rows of the layers of one pass, as GATHER_COLUMNS; `gathers` are the times of the step's all-gathers."""
    trace, activities, origin_ns = steps.rank.trace, steps.scope.activities, int(steps.windows.begin_ns[step])
    is_in_pass = steps.is_here & (steps.step == step) & (trace.enclosing(pass_name) != NONE)
    if not is_in_pass.any():
        return
    instance = np.where(is_in_pass & steps.is_compute, trace.enclosing(layer), NONE)
    computed = steps.during(steps.is_compute)
    begin_ns, number = int(activities.start_ns[is_in_pass].min()), 0
    for rows in _instance_rows(instance, activities.start_ns):
        end_ns = int(activities.end_ns[rows].max())
        if end_ns <= begin_ns:  # all of it ran during the previous layer
            continue
        gather_count = int(((gathers.end_ns > begin_ns) & (gathers.end_ns <= end_ns)).sum())
        idle = intervals.gaps(computed, begin_ns, end_ns)
        late_ns = sum(
            lateness(gathers, *gap, recorded_late=steps.device == CPU_DEVICE)
            for gap in zip(idle.start_ns.tolist(), idle.end_ns.tolist(), strict=True)
        )
        yield (
            steps.rank.number, steps.device, step, pass_name, number, begin_ns - origin_ns, end_ns - origin_ns,
            gather_count, late_ns,
        )  # fmt: skip
        begin_ns, number = end_ns, number + 1


def _instance_rows(instance: np.ndarray, start_ns: np.ndarray) -> list[np.ndarray]:
    """The rows of every instance, in the order of their first starts."""
    rows = np.flatnonzero(instance != NONE)
    rows = rows[np.argsort(start_ns[rows], kind="stable")]
    return [rows[instance[rows] == number] for number in dict.fromkeys(instance[rows].tolist())]


def lateness(gathers: Intervals, gap_start_ns: int, gap_end_ns: int, *, recorded_late: bool = False) -> int:
    """The ns from the start of a gap in computation to the end of the last all-gather that ended in it; 0 without one.
    With `recorded_late`, the ends of all-gathers are recorded late: one that ends after the gap counts, too, if it does
    so by at most a tenth of the time that it ran in the gap."""
    in_gap_ns = np.minimum(gathers.end_ns, gap_end_ns) - np.maximum(gathers.start_ns, gap_start_ns)
    tolerance_ns = np.maximum(in_gap_ns, 0) // 10 if recorded_late else 0
    ends_ns = gathers.end_ns[(gathers.end_ns > gap_start_ns) & (gathers.end_ns <= gap_end_ns + tolerance_ns)]
    return int(min(ends_ns.max(), gap_end_ns)) - gap_start_ns if len(ends_ns) else 0
