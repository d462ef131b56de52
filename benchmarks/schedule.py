"""Simulates orders of measurements: `python -m benchmarks.schedule [--gpus 4] [--cores 24]`.

It takes the grid of 2025 and the seconds for which each measurement leased one H200
(docs/example-h200/diagnosis/tables/cost.parquet). A measurement that has a core starts, waits for a GPU, has it for its
lease, and finishes while others run; the tables of a run follow when both of its measurements are done. Leases are in
order of arrival. The seconds that the example lacks are assumed: the constants below. A random order is compared with
that of the pipeline, and both with the bound: all leases, shared evenly.
"""

import heapq
import itertools
import random
import statistics
from collections import Counter
from dataclasses import dataclass

import pandas as pd

from benchmarks.harness import ROOT, print_row, project_config, run
from profile_grid.planning.estimates import usual_seconds
from profile_grid.study.runs import grid_plan
from profile_grid.study.stages import BY_NAME, CAPTURE, TIMING

COST = ROOT / "docs" / "example-h200" / "diagnosis" / "tables" / "cost.parquet"
BEFORE_S = 3.0  # interpreters and imports, before there is a lease
AFTER_S = {TIMING.name: 0.3, CAPTURE.name: 5.5}  # nsys ends, its report is exported
TABLES_S = 3.0  # the tables of a run


@dataclass(frozen=True)
class Measurement:
    """One measurement: seconds for which it leases a GPU, and those that the pipeline expects."""

    run: str
    stage: str
    lease_s: float
    usual_s: float


def measurements() -> list[Measurement]:
    """The measurements of the grid of 2025 in config.yaml."""
    plan = {entry["run"]: entry["specifications"] for entry in grid_plan(project_config(grid="cs336-2025"))["runs"]}
    return [
        Measurement(run, stage, leased_s, usual_seconds(BY_NAME[stage], plan[run][stage]))
        for run, stage, leased_s in pd.read_parquet(COST, columns=["run", "stage", "leased_s"]).itertuples(index=False)
        if run in plan
    ]


def simulated(queue: list[Measurement], gpus: int, cores: int) -> tuple[float, float]:
    """When the last lease ends, and when the last tables are made; measurements start in the order of the queue."""
    events, count, now, leases_end = [], itertools.count(), 0.0, 0.0
    queue, waiting, tables, done = list(reversed(queue)), [], [], Counter()

    def schedule(delay_s: float, event: str, measurement: Measurement) -> None:
        heapq.heappush(events, (now + delay_s, next(count), event, measurement))

    while True:
        while cores and (tables or queue):
            cores -= 1
            schedule(TABLES_S, "tables made", tables.pop()) if tables else schedule(BEFORE_S, "waits", queue.pop())
        while gpus and waiting:
            gpus -= 1
            schedule(waiting[0].lease_s, "returns GPU", waiting.pop(0))
        if not events:
            return leases_end, now
        now, _, event, measurement = heapq.heappop(events)
        if event == "waits":
            waiting.append(measurement)
        elif event == "returns GPU":
            gpus, leases_end = gpus + 1, now
            schedule(AFTER_S[measurement.stage], "ends", measurement)
        else:
            cores += 1
            done[measurement.run] += event == "ends"
            if event == "ends" and done[measurement.run] == len(AFTER_S):
                tables.append(measurement)


def main(*, gpus: int = 4, cores: int = 24, trials: int = 200) -> None:
    grid = measurements()
    bound = sum(measurement.lease_s for measurement in grid) / gpus + BEFORE_S
    print(f"{len(grid)} measurements, {gpus} GPUs, {cores} cores; shared evenly: {bound:.0f} s\n")
    head = ("order", "last lease ends, s", "last tables, s", "one trial of ten is above, s", "last lease ÷ even share")
    print_row(*head, heading=True)
    for name in ("random", "longest first"):
        ends = []
        for trial in range(trials):
            queue = sorted(grid, key=lambda measurement: -measurement.usual_s)
            if name == "random":
                random.Random(trial).shuffle(queue)
            ends.append(simulated(queue, gpus, cores))
        leases, tables = (statistics.mean(times) for times in zip(*ends, strict=True))
        ninth = statistics.quantiles([tables_s for _, tables_s in ends], n=10)[-1]
        print_row(name, leases, tables, ninth, leases / bound)


if __name__ == "__main__":
    run(main)
