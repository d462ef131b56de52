"""The cost of communication, in a sentence for each rank."""

from collections.abc import Iterator, Sequence

import pandas as pd

from kernel_tables.units import duration, percent


def sentences(table: pd.DataFrame, numbers: Sequence[int]) -> Iterator[str]:
    """A sentence with the means over the steps for each rank and device in a table of `communication`; none for those
    that ran no collective. `numbers` are the printed numbers of the ranks."""
    has_several = table.groupby("rank")["device"].nunique().gt(1)
    for (rank, device), steps in table.groupby(["rank", "device"]):
        mean = steps.mean(numeric_only=True)
        if not mean["collectives"]:
            continue
        exposed_ns, step_ns = mean["exposed_communication_ns"], mean["step_ns"]
        device_name = f"rank {numbers[rank]}, device {device}" if has_several[rank] else f"rank {numbers[rank]}"
        text = (
            f"{device_name}: communication takes {duration(mean['communication_ns'])} of a step of {duration(step_ns)},"
            f" {duration(exposed_ns)} of it ({percent(exposed_ns / step_ns)} of the step) not overlapped by computation"
        )
        if not steps["waiting_ns"].isna().any():
            text += f"; its collectives wait {duration(mean['waiting_ns'])} for the slowest rank"
        yield text
