"""Measures the time of Nsight Compute per counted launch, by metrics: `python -m benchmarks.counting [--repeats 2]`.

Eight small kernels are counted with all metrics of the stage of counters, with each group of them alone, and with all
except one group: the difference is the cost of a group. The first launch of a process is omitted, since ncu loads its
libraries then. Needs a GPU that nothing else uses, and ncu with permission to count. `--metrics` counts one list of
metrics instead; write a group of ncu as group:NAME.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

from benchmarks.harness import print_row, run
from kernel_recorder.ncu_profile import ALL, Round, counters_command, find
from kernel_tables.counters import metrics
from kernel_tables.counters.metrics import Metric

PROGRAM = Path(__file__).parent / "programs" / "eight_kernels.py"
GROUPS = {
    "instructions": metrics.INSTRUCTIONS.values(),
    "tensor cores": metrics.TENSOR_OPERATIONS.values(),
    "tensor cores, whether any": (metrics.TENSOR_INSTRUCTIONS, metrics.WITHOUT_MATRICES),
    "time, DRAM, L2": (metrics.TIME_NS, *metrics.DRAM_BYTES, metrics.L2_BYTES),
    "occupancy": (metrics.OCCUPANCY, metrics.OCCUPANCY_POSSIBLE),
    "of the launch": (metrics.REGISTERS, metrics.MULTIPROCESSORS, *metrics.LIMITS.values()),
    "stalls": metrics.STALLS.values(),
}


def main(*, repeats: int = 2, metrics: list[str] | None = None) -> str | None:
    if find() is None:
        return "there is no ncu on PATH; install Nsight Compute"
    print_row("metrics", "number", "seconds a launch, median", "least", "most", "median ÷ first line's", heading=True)
    first = None
    for name, names in ({"given": set(metrics)} if metrics else groups()).items():
        seconds = [launch for _ in range(repeats) for launch in seconds_of_launches(names)]
        median = statistics.median(seconds)
        first = first or median
        print_row(name, len(names), median, min(seconds), max(seconds), median / first)


def groups() -> dict[str, set[str]]:
    """The lists of metrics to count, by the name of their row: all, each group, and all except each group."""
    union = {name for names in GROUPS.values() for name in names}
    alone = {f"{name} alone": set(names) for name, names in GROUPS.items()}
    return {"all": union} | alone | {f"all but {name}": union - set(names) for name, names in GROUPS.items()}


def seconds_of_launches(names: Collection[str]) -> list[float]:
    """The seconds of each launch except the first, while ncu counts these metrics."""
    ncu_round = Round(ALL, 1, tuple(Metric(name, ()) for name in sorted(names)))
    with tempfile.TemporaryDirectory() as folder:
        command = counters_command([sys.executable, str(PROGRAM)], Path(folder, "table.csv"), ncu_round)
        environment = os.environ | dict.fromkeys(("HOME", "TMPDIR"), folder)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        printed = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("seconds ")]
        if done.returncode or not printed:
            raise SystemExit(f"ncu ended with status {done.returncode}:\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return [float(text) for text in printed[0][1:]]


if __name__ == "__main__":
    run(main)
