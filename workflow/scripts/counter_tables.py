"""The table `counters` of one run: launches of its capture, joined with what Nsight Compute counted of such launches.

    python -m workflow.scripts.counter_tables results/runs/RUN CLASSES

Reads counters.json, ncu.csv, capture.json and capture.sqlite there, and writes counters.parquet and .csv; without
counters, or a capture to which they can be joined, a table without rows. CLASSES are kernel_classes of config.yaml, as
JSON. Times are those of the capture, since ncu empties caches before each kernel. Fails if counters lack for more than
1 % of the time of kernels.
"""

from cs336_model import locks

if __name__ == "__main__":
    LOCK = locks.shared()  # nothing heavy is imported beside a measured step

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from cs336_model.results import BadResult, read_result
from kernel_tables import counters
from kernel_tables.classes import family
from kernel_tables.errors import NotConserved, TraceError
from kernel_tables.profile import read
from workflow.peaks import peak_bytes_per_s, peak_flop_per_s
from workflow.scripts.run_tables import MEMORY_OPERATIONS, place_in_steps
from workflow.tables import make_table, write_table

LEFT_OUT = "left out: communication"


def main(folder: Path, classes: Sequence[dict] = ()) -> None:
    result, capture = read_result(folder / "counters.json"), read_result(folder / "capture.json")
    table = make_table("counters", keys=False)
    if result.status == capture.status == "complete" and capture.profiler == "nsys":
        with read(folder / "capture.sqlite", classes) as profile:
            is_measured, sizes = profile.enclosing("measure") >= 0, profile.capture.source.sizes()
            rows = place_in_steps(profile)[0].rename(columns={"name": "kernel"})
        rows = rows.assign(grid=sizes["grid"][is_measured], block=sizes["block"][is_measured])
        rows = rows[(rows["step"] >= 0) & ~rows["kind"].isin(MEMORY_OPERATIONS)]
        launches = rows[[*counters.CONFIGURATION, "class", "duration_ns"]].astype({"kernel": "str", "class": "str"})
        counted = counters.without_uncounted(counters.read_counters(folder / "ncu.csv"))
        table = count_kernels(launches, counted, capture.machine.device_name)
        countable = table[table["not_counted"] != LEFT_OUT]
        lost = countable[countable["not_counted"] != ""]
        share = lost["total_ns"].sum() / max(countable["total_ns"].sum(), 1)
        if share > 0.01:
            longest = "{kernel}, grid {grid} ({not_counted})".format(**lost.iloc[0])
            raise TraceError(
                f"{folder / 'ncu.csv'}: {len(lost)} of {len(table)} kernels have no counters, {100 * share:.1f} % of"
                f" the time; the longest is {longest}; if layers differ, count more (counters: {{layers: 100}});"
                f" snakemake --forcerun {folder / 'counters.json'}"
            )
    write_table(table, folder / "counters.parquet", keys=False)


def count_kernels(launches: pd.DataFrame, counted: pd.DataFrame, device_name: str) -> pd.DataFrame:
    """The table `counters`, the most time first. Raises NotConserved if a launch or a nanosecond is lost."""
    joined = counters.join_counters(launches, counted)
    is_left_out = joined["class"].map(family) == "communication"  # a replayed kernel of NCCL waits forever
    joined["counted_as"] = joined["counted_as"].mask(is_left_out, counters.NO_COUNTED_ROW)
    joined["not_counted"] = joined["not_counted"].mask(is_left_out, LEFT_OUT)
    table = counters.configurations(joined)
    if (table["total_ns"].sum(), table["launches"].sum()) != (launches["duration_ns"].sum(), len(launches)):
        raise NotConserved("counters: launches or nanoseconds of the capture are lost in the join")
    metrics = counted.drop(columns=counters.CONFIGURATION).reindex(table["counted_as"]).set_axis(table.index)
    work, seconds = counters.work_of(metrics), table["total_ns"] / table["launches"] / 1e9
    peaks = {kind: peak_flop_per_s(device_name, kind) for kind in counters.FLOP_KINDS}
    rates = counters.rates_of(work, seconds, peaks, peak_bytes_per_s(device_name))
    table = pd.concat([table, work, rates, counters.launch_facts(table["grid"], metrics)], axis=1)
    return table.join(counters.verdicts_of(table))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), json.loads(sys.argv[2]))
    except (BadResult, TraceError, OSError) as error:
        sys.exit(f"counter_tables: {error}")
