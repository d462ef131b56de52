"""What Nsight Compute takes to count one launch, by what it counts: `python -m benchmarks.counting [--repeat 2]`.

Eight small kernels are counted with all metrics that the stage of counters asks for, in one of its rounds or another,
with each group of them alone, and with all but one group: what a group costs is the difference. The first launch of a
process is left out, since ncu loads what it needs there. Needs a GPU that nothing else uses, and ncu that may count.
`--metrics` counts one list of metrics instead, ours or others.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=2, help="processes for each line")
    parser.add_argument("--metrics", nargs="+", metavar="NAME", help="these alone; a group as group:NAME")
    options = parser.parse_args()
    if find() is None:
        raise SystemExit("there is no ncu on PATH; install Nsight Compute")
    print("| metrics | number | seconds a launch, median | least | most |")
    print("| --- | ---: | ---: | ---: | ---: |", flush=True)
    for name, names in ({"asked": set(options.metrics)} if options.metrics else groups()).items():
        seconds = [one for _ in range(options.repeat) for one in seconds_of_launches(names)]
        figures = statistics.median(seconds), min(seconds), max(seconds)
        print(f"| {name} | {len(names)} | {' | '.join(f'{one:.3f}' for one in figures)} |", flush=True)


def groups() -> dict[str, set[str]]:
    """What is counted together, by the name of its line: all, each group, and all but each."""
    every = {name for names in GROUPS.values() for name in names}
    alone = {f"{name} alone": set(own) for name, own in GROUPS.items()}
    return {"all": every} | alone | {f"all but {name}": every - set(own) for name, own in GROUPS.items()}


def seconds_of_launches(names: Collection[str]) -> list[float]:
    """Seconds of each launch but the first, under an ncu that counts these metrics."""
    wanted = Round(ALL, 1, tuple(Metric(name, ()) for name in sorted(names)))
    with tempfile.TemporaryDirectory() as folder:
        command = counters_command([sys.executable, str(PROGRAM)], Path(folder, "table.csv"), wanted)
        own = dict.fromkeys(("HOME", "TMPDIR"), folder)
        done = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, check=False)
        told = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("seconds ")]
        if done.returncode or not told:
            raise SystemExit(f"ncu ended with status {done.returncode}:\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return [float(one) for one in told[0][1:]]


if __name__ == "__main__":
    main()
