"""What Nsight Compute takes to count one launch, by what it counts: `python -m benchmarks.counting [--repeat 2]`.

Eight small kernels are counted with all metrics that the stage of counters asks for, with each group of them alone, and
with all but one group: what a group costs is the difference. The first launch of a process is left out, since ncu loads
what it needs there. Needs a GPU that nothing else uses, and ncu with the permission to count.
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

from kernel_tables.counters import metrics
from kernel_tables.recording.ncu_profile import ROUNDS, Round, counters_command, find

PROGRAM = Path(__file__).parent / "programs" / "eight_kernels.py"
GROUPS = {
    "instructions": metrics.INSTRUCTIONS.values(),
    "tensor cores": metrics.TENSOR_OPERATIONS.values(),
    "time, DRAM, L2": (metrics.TIME_NS, *metrics.DRAM_BYTES, metrics.L2_BYTES),
    "occupancy": (metrics.OCCUPANCY, metrics.OCCUPANCY_POSSIBLE),
    "of the launch": (metrics.REGISTERS, metrics.MULTIPROCESSORS, *metrics.LIMITS.values()),
    "stalls": metrics.STALLS.values(),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=2, help="processes for each line")
    options = parser.parse_args()
    if find() is None:
        raise SystemExit("there is no ncu on PATH; install Nsight Compute")
    every = {metric.name for metric in ROUNDS[0].metrics}
    asked = {"all": every}
    asked |= {f"{name} alone": set(own) for name, own in GROUPS.items()}
    asked |= {f"all but {name}": every - set(own) for name, own in GROUPS.items()}
    print("| metrics | number | seconds a launch, median | least | most |")
    print("| --- | ---: | ---: | ---: | ---: |", flush=True)
    for name, names in asked.items():
        seconds = [one for _ in range(options.repeat) for one in seconds_of_launches(names)]
        figures = statistics.median(seconds), min(seconds), max(seconds)
        print(f"| {name} | {len(names)} | {' | '.join(f'{one:.3f}' for one in figures)} |", flush=True)


def seconds_of_launches(names: Collection[str]) -> list[float]:
    """Seconds of each launch but the first, under an ncu that counts these metrics."""
    wanted = Round(ROUNDS[0].names, 1, tuple(one for one in ROUNDS[0].metrics if one.name in names))
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
