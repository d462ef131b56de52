"""The cost of communication by step, device and rank, and whether the ranks fit together."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from kernel_tables.columns import names_of
from kernel_tables.diagnosis.devices import PARTS
from kernel_tables.errors import Finding, finding
from kernel_tables.ranks.collectives import collectives, unmatched_steps
from kernel_tables.ranks.ranks import RankTrace
from kernel_tables.ranks.steps import OVERLAPPED, DeviceSteps, device_steps

KEY = ["rank", "device", "step"]
PART_COLUMNS = dict(
    zip(PARTS, ("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns"), strict=True)
)  # fmt: skip
SUMS = ("bytes", "transfer_ns", "waiting_ns")
COLUMNS = names_of("communication")


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


def findings_of_ranks(ranks: Sequence[RankTrace], step_name: str = "step") -> list[Finding]:
    """The findings about several ranks together; none for a single rank."""
    return [*_steps_differ(ranks, step_name)] or [*_collectives_differ(ranks, step_name)]


def _steps_differ(ranks: Sequence[RankTrace], step_name: str) -> Iterator[Finding]:
    """Processes without steps do not count if another process is in the same capture."""
    processes = Counter(rank.trace for rank in ranks)
    steps = {rank.number: len(rank.steps(step_name)) for rank in ranks}
    steps = {rank.number: steps[rank.number] for rank in ranks if steps[rank.number] or processes[rank.trace] == 1}
    usual = max(steps.values(), default=0)
    fewer = [f"rank {number}: {count}" for number, count in steps.items() if count != usual]
    if fewer:
        yield finding(
            "ranks_differ",
            f"ranks hold up to {usual} ranges {step_name!r}, others fewer ({', '.join(fewer)}): steps of ranks are"
            " matched by number, so they would be compared with other steps; capture the same steps of all ranks",
        )


def _collectives_differ(ranks: Sequence[RankTrace], step_name: str) -> Iterator[Finding]:
    steps = unmatched_steps(ranks, step_name) if ranks else []
    if steps:
        yield finding(
            "collectives_differ",
            f"ranks ran different collectives in steps {', '.join(map(str, steps[:5]))}: transfer cannot be"
            " distinguished from waiting for the slowest rank there; capture all ranks of the run",
        )
