"""What an all-reduce takes, by size and number of GPUs: `python -m workflow.scripts.all_reduce --gpus 2 4`.

One process for each GPU, by NCCL; without a GPU by Gloo. Writes results/all_reduce.csv and .parquet.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from profile_grid.files import write_table
from profile_grid.measuring.all_reduce import all_reduced, rows, specification
from profile_grid.measuring.job import Job
from profile_grid.measuring.lease_server import leases_for
from profile_grid.measuring.progress import say
from workflow.command import run_command

MEGABYTE = 10**6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=_at_least(2), nargs="+", default=[2], help="numbers of GPUs; 2 or more")
    parser.add_argument("--megabytes", type=_at_least(1), nargs="+", default=[1, 10, 100, 1000], help="sizes")
    parser.add_argument("--repeats", type=_at_least(1), default=20, help="all-reduces of each size that are timed")
    parser.add_argument("--warmup", type=_at_least(1), default=5, help="those before")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--output", type=Path, default=Path("results/all_reduce.csv"))
    parser.add_argument("--time-limit-s", type=float, default=300)
    arguments = parser.parse_args()
    import pandas as pd  # only now: a wrong option is told at once

    found = [row for gpus in arguments.gpus for row in measured(gpus, arguments)]
    write_table(arguments.output, pd.DataFrame(found))


def measured(gpus: int, arguments: argparse.Namespace) -> list[dict]:
    """The rows of one number of GPUs, which are leased together meanwhile."""
    sizes = [size * MEGABYTE for size in arguments.megabytes]
    told = specification(arguments.device, gpus, sizes, arguments.warmup, arguments.repeats)
    what, log = told["program"]["run"], Path("logs/all_reduce.log")
    with (
        leases_for(arguments.device, what, gpus, quiet_host=True, say=say) as leases,
        tempfile.TemporaryDirectory() as scratch,
    ):
        job = Job(told, Path(scratch), Path(scratch), log, arguments.time_limit_s, leases)
        found = rows(all_reduced(job))
    for row in found:
        say(f"{what}, {row['bytes'] // MEGABYTE} MB: {row['mean_ms']:.3f} ms, bus {row['bus_gb_per_s']:.1f} GB/s")
    return found


def _at_least(least: int):
    """A reader of whole numbers of an option, none below `least`."""

    def number(text: str) -> int:
        if (value := int(text)) < least:
            raise argparse.ArgumentTypeError(f"{value} is less than {least}")
        return value

    return number


if __name__ == "__main__":
    run_command(main)
