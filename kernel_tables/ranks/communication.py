"""What communication costs each step, on every device of every rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from kernel_tables.diagnosis.devices import PARTS
from kernel_tables.ranks.collectives import collectives
from kernel_tables.ranks.ranks import RankTrace
from kernel_tables.ranks.steps import OVERLAPPED, DeviceSteps, device_steps

KEY = ["rank", "device", "step"]
PART_COLUMNS = dict(
    zip(PARTS, ("compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns"), strict=True)
)  # fmt: skip
SUMS = ("bytes", "transfer_ns", "waiting_ns")
COLUMNS = [
    *KEY, "step_ns", *PART_COLUMNS.values(), "communication_ns", "overlapped_ns", "collectives", *SUMS,
]  # fmt: skip


def communication(ranks: Sequence[RankTrace], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device and measured step.

    Columns: rank, device, step; step_ns = compute_ns + exposed_communication_ns + exposed_memory_ns + idle_ns;
    communication_ns (while at least one collective ran), overlapped_ns (of that, while a kernel computed); collectives
    (their number); bytes, transfer_ns, waiting_ns (sums over the collectives; missing where one of them is).
    Raises NotConserved where the parts are not the step.
    """
    found = device_steps(ranks, step_name)
    if not found:  # no device has a step in which anything ran
        return pd.DataFrame(columns=COLUMNS, dtype="Int64")
    table = pd.concat([_of_device(steps) for steps in found], ignore_index=True)
    single = collectives(ranks, step_name).groupby(KEY)
    sums = single[list(SUMS)].agg(lambda column: column.sum(skipna=False))
    table = table.join(single.size().rename("collectives"), on=KEY).join(sums, on=KEY)
    table["collectives"] = table["collectives"].fillna(0).astype("int64")
    return table[COLUMNS]


def _of_device(steps: DeviceSteps) -> pd.DataFrame:
    parts = steps.parts_ns()
    exposed, overlapped = parts["exposed communication"], parts[OVERLAPPED]
    named = {column: parts[part] for part, column in PART_COLUMNS.items()}
    return pd.DataFrame(
        {
            "rank": steps.rank.number,
            "device": steps.device,
            "step": np.arange(len(exposed)),
            "step_ns": steps.length_ns,
            **named,
            "communication_ns": exposed + overlapped,
            "overlapped_ns": overlapped,
        }
    )
