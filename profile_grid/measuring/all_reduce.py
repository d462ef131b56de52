"""All-reduce alone, of several sizes between several GPUs: one measurement, and the bandwidths that follow from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from statistics import mean, stdev

from profile_grid.measuring.job import Job
from profile_grid.measuring.ranks import of_rank, results_of_ranks, slowest

MODULE = "cs336_model.program.parallel.all_reduce"
GIGABYTE = 1e9
COLUMNS = {
    "gpus": "GPUs, each with a process of its own; on a CPU processes",
    "bytes": "size of the fp32 tensor that every rank has",
    "repeats": "all-reduces that were timed, one right behind the other",
    "mean_ms": "their mean time, in each that of the slowest rank",
    "std_ms": "standard deviation (n − 1) between them",
    "algorithm_gb_per_s": "bytes ÷ mean time, in 10⁹ bytes per second",
    "bus_gb_per_s": "that × 2 (n − 1) ÷ n for n ranks: what each link of a ring carries",
    "device_name": "name of the GPU or CPU",
}


def specification(device: str, gpus: int, sizes: Sequence[int], warmup: int, repeats: int) -> dict:
    """What the ranks of one measurement are told."""
    program = {"run": f"all-reduce on {gpus} GPUs", "dimensions": {"gpus": gpus}, "device": device}
    return {"program": program | {"bytes": list(sizes), "warmup": warmup, "repeats": repeats}, "environment": []}


def all_reduced(job: Job) -> list[dict]:
    """What every rank measured; raises ProgramFailed when one does not end well."""
    result = job.scratch / "all_reduce.json"

    def command(rank: int) -> list[str]:
        own = result.with_name(of_rank(result.name, rank))
        told = [sys.executable, "-m", MODULE, "--spec", json.dumps(job.program, sort_keys=True), "--output", str(own)]
        lease = job.leases.address
        return [*told, "--time-limit-s", str(job.time_limit_s), *(["--lease", str(lease)] if lease else [])]

    return results_of_ranks(job, job.program["run"], result, command)[0]


def rows(ranks: Sequence[Mapping]) -> list[dict]:
    """A row per size, of what all ranks measured of it; the columns are those of COLUMNS."""
    return [_row(len(ranks), sizes, ranks[0]["machine"]["device_name"]) for sizes in _by_size(ranks)]


def _by_size(ranks: Sequence[Mapping]) -> list[tuple[Mapping, ...]]:
    return list(zip(*(one["sizes"] for one in ranks), strict=True))


def _row(gpus: int, of_ranks: Sequence[Mapping], device_name: str) -> dict:
    seconds, size = slowest([one["seconds"] for one in of_ranks]), of_ranks[0]["bytes"]
    bandwidth = size / mean(seconds) / GIGABYTE
    return {
        "gpus": gpus, "bytes": size, "repeats": len(seconds),
        "mean_ms": 1e3 * mean(seconds), "std_ms": 1e3 * stdev(seconds) if len(seconds) > 1 else None,
        "algorithm_gb_per_s": bandwidth, "bus_gb_per_s": bandwidth * 2 * (gpus - 1) / gpus, "device_name": device_name,
    }  # fmt: skip
