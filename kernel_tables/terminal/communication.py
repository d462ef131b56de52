"""What communication costs, in a sentence for each rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from kernel_tables.units import duration, percent


def sentences(table: pd.DataFrame, numbers: Sequence[int]) -> Iterator[str]:
    """A sentence for each rank and device of a table of `communication`: means over its steps; none where no step holds
    communication. `numbers` are what the ranks are called, in their order."""
    has_several = table.groupby("rank")["device"].nunique().gt(1)
    for (rank, device), steps in table.groupby(["rank", "device"]):
        mean = steps.mean(numeric_only=True)
        if not mean["collectives"]:
            continue
        alone_ns, step_ns = mean["exposed_communication_ns"], mean["step_ns"]
        place = f"rank {numbers[rank]}, device {device}" if has_several[rank] else f"rank {numbers[rank]}"
        text = (
            f"{place}: communication takes {duration(mean['communication_ns'])} of a step of {duration(step_ns)},"
            f" {duration(alone_ns)} of it ({percent(alone_ns / step_ns)} of the step) not overlapped by computation"
        )
        if not steps["waiting_ns"].isna().any():
            text += f"; its collectives wait {duration(mean['waiting_ns'])} for the slowest rank"
        yield text
