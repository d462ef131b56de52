"""What the order of measurements is worth: `python -m benchmarks.schedule [--gpus 4] [--cores 24]`. A simulation.

The grid of 2025 with the seconds that it leased one H200 for (docs/example-h200/diagnosis/tables/cost.parquet): who has
a core starts, waits for a GPU, has it for its lease, and goes on beside others; a run's tables follow when both of its
measurements are done. Who came first is next, as with the leases. What is not in the example is
assumed: the seconds in capitals below. Any order is compared with that of the pipeline, and both with the bound: all
leases, shared evenly.
"""

from __future__ import annotations

import heapq
import itertools
import random
import statistics
from collections import Counter
from dataclasses import dataclass

import pandas as pd
import yaml

from benchmarks.harness import ROOT, print_row, run
from profile_grid.planning.estimates import usual_seconds
from profile_grid.study.runs import grid_plan
from profile_grid.study.stages import BY_NAME, CAPTURE, TIMING

COST = ROOT / "docs" / "example-h200" / "diagnosis" / "tables" / "cost.parquet"
BEFORE_S = 3.0  # interpreters and imports, before there is a lease
BEHIND_S = {TIMING.name: 0.3, CAPTURE.name: 5.5}  # nsys ends, its report is exported
TABLES_S = 3.0  # a run's tables


@dataclass(frozen=True)
class Measurement:
    """One measurement: seconds that it leases a GPU, and those that the pipeline thinks it takes."""

    run: str
    stage: str
    lease_s: float
    usual_s: float


def measurements() -> list[Measurement]:
    """Those of the grid of 2025 in config.yaml."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text()) | {"grid": "cs336-2025"}
    plan = {entry["run"]: entry["specifications"] for entry in grid_plan(config)["runs"]}
    rows = [row for row in pd.read_parquet(COST).to_dict("records") if row["run"] in plan]
    return [
        Measurement(row["run"], row["stage"], row["leased_s"], usual(row["stage"], plan[row["run"]])) for row in rows
    ]


def usual(stage: str, specifications: dict) -> float:
    """What decides the place of a measurement in the order."""
    return usual_seconds(BY_NAME[stage], specifications[stage])


def simulated(queue: list[Measurement], gpus: int, cores: int) -> tuple[float, float]:
    """When the last lease ends, and the last tables are made; the queue is begun in its order."""
    events, count, now, leases_end = [], itertools.count(), 0.0, 0.0
    queue, waiting, tables, done = list(reversed(queue)), [], [], Counter()

    def at(seconds: float, what: str, one: Measurement) -> None:
        heapq.heappush(events, (now + seconds, next(count), what, one))

    while True:
        while cores and (tables or queue):
            cores -= 1
            at(TABLES_S, "tables made", tables.pop()) if tables else at(BEFORE_S, "waits", queue.pop())
        while gpus and waiting:
            gpus -= 1
            one = waiting.pop(0)
            at(one.lease_s, "gives back", one)
        if not events:
            return leases_end, now
        now, _, what, one = heapq.heappop(events)
        if what == "waits":
            waiting.append(one)
        elif what == "gives back":
            gpus, leases_end = gpus + 1, now
            at(BEHIND_S[one.stage], "ends", one)
        else:
            cores += 1
            done[one.run] += what == "ends"
            if what == "ends" and done[one.run] == len(BEHIND_S):
                tables.append(one)


def main(*, gpus: int = 4, cores: int = 24, trials: int = 200) -> None:
    every = measurements()
    bound = sum(one.lease_s for one in every) / gpus + BEFORE_S
    print(f"{len(every)} measurements, {gpus} GPUs, {cores} cores; shared evenly: {bound:.0f} s\n")
    head = ("order", "last lease ends, s", "last tables, s", "one trial of ten is above, s", "last lease ÷ even share")
    print_row(*head, heading=True)
    for name in ("any", "longest first"):
        ends = []
        for trial in range(trials):
            queue = sorted(every, key=lambda one: -one.usual_s)
            if name == "any":
                random.Random(trial).shuffle(queue)
            ends.append(simulated(queue, gpus, cores))
        leases, tables = (statistics.mean(times) for times in zip(*ends, strict=True))
        ninth = statistics.quantiles([tables_s for _, tables_s in ends], n=10)[-1]
        print_row(name, leases, tables, ninth, leases / bound)


if __name__ == "__main__":
    run(main)
