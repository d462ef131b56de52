"""What the order of measurements is worth: `python -m benchmarks.schedule [--gpus 4] [--cores 24]`. A simulation.

The grid of 2025 with the seconds that it leased one H200 for (docs/example-h200/diagnosis/tables/cost.parquet): who has
a core starts, waits for a GPU, has it for its lease, and goes on beside others; a run's tables follow when both of its
measurements are done. Who came first is next, as with the leases. What is not in the example is
assumed: the seconds in capitals below. Any order is compared with that of the pipeline, and both with the bound: all
leases, shared evenly.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import statistics
from collections import Counter
from dataclasses import dataclass

import pandas as pd
import yaml

from benchmarks.made_grid import ROOT
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
    """Those of the grid of 2025."""
    plan = {entry["run"]: entry["specifications"] for entry in grid_plan(configuration())["runs"]}
    rows = [row for row in pd.read_parquet(COST).to_dict("records") if row["run"] in plan]
    return [
        Measurement(row["run"], row["stage"], row["leased_s"], usual(row["stage"], plan[row["run"]])) for row in rows
    ]


def configuration() -> dict:
    """config.yaml, with the grid of 2025."""
    return yaml.safe_load((ROOT / "config.yaml").read_text()) | {"grid": "cs336-2025"}


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--cores", type=int, default=24)
    parser.add_argument("--trials", type=int, default=200)
    arguments = parser.parse_args()
    every = measurements()
    bound = sum(one.lease_s for one in every) / arguments.gpus + BEFORE_S
    print(f"{len(every)} measurements, {arguments.gpus} GPUs, {arguments.cores} cores; shared evenly: {bound:.0f} s")
    print("| order | last lease ends, s | last tables, s | one trial of ten is above, s |")
    print("| --- | ---: | ---: | ---: |", flush=True)
    for name in ("any", "longest first"):
        ends = []
        for trial in range(arguments.trials):
            chance = random.Random(trial)
            queue = sorted(every, key=lambda one: -one.usual_s)
            if name == "any":
                chance.shuffle(queue)
            ends.append(simulated(queue, arguments.gpus, arguments.cores))
        leases, tables = zip(*ends, strict=True)
        ninth = statistics.quantiles(tables, n=10)[-1]
        print(f"| {name} | {statistics.mean(leases):.0f} | {statistics.mean(tables):.0f} | {ninth:.0f} |")


if __name__ == "__main__":
    main()
