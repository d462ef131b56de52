"""One rank of a measurement of all-reduce alone: fp32 sums of given sizes, each repeated, and their times as JSON.

    python -m cs336_model.program.parallel.all_reduce --spec '{...}' --megabytes '[1, 1000]' --output result.json

Started by cs336_model.program.parallel.launch, as the ranks of a run are. The run's model is not made: a step is one
all-reduce, and the result has the all-reduces of the last size as its steps.
"""

import json
from collections.abc import Sequence
from itertools import pairwise, starmap
from typing import Any

import torch
import torch.distributed as dist

from cs336_model.program.device import device_facts, leave_device, moment, open_context, resolve_device, seconds_between
from cs336_model.program.parallel.ranks import join_group, leave_group, this_rank, wait_for_all
from cs336_model.program.process import Progress, process_age_seconds, program_parser, wait_for_lease
from cs336_model.program.result import empty_result, process_facts, write_result
from cs336_model.program.spec import RunSpec, read_spec

MEGABYTE, FP32_BYTES = 10**6, 4


def main(arguments: list[str] | None = None) -> None:
    """Measures every size and writes the result of this rank."""
    parser = program_parser("cs336_model.program.parallel.all_reduce", __doc__.partition("\n")[0])
    parser.add_argument("--megabytes", required=True, type=json.loads, help="JSON list of sizes, in 10^6 bytes")
    options = parser.parse_args(arguments)
    spec, progress = read_spec(options.spec), Progress()
    progress.seconds["import"] = process_age_seconds()
    wait_for_lease(options, progress)
    write_result(all_reduce_result(spec, options.megabytes, progress), options.output)


def all_reduce_result(spec: RunSpec, megabytes: Sequence[int], progress: Progress) -> dict[str, Any]:
    """A result with every key, and `sizes`: for each, its bytes and the seconds of every all-reduce, warm-up apart."""
    device = resolve_device(spec.device, this_rank().number)
    with progress.stage("context"):
        open_context(device)
        join_group(device)
    sizes = [measured_size(size * MEGABYTE, spec, device, progress) for size in megabytes]
    facts = device_facts(device)
    leave_group()
    leave_device(device)
    facts |= process_facts(progress, device)
    steps = {"step_seconds": sizes[-1]["seconds"], "warmup_seconds": sizes[-1]["warmup_seconds"]}
    return empty_result(spec, profiler="none") | {"status": "complete", "sizes": sizes} | facts | steps


def measured_size(byte_count: int, spec: RunSpec, device: torch.device, progress: Progress) -> dict[str, Any]:
    """The entry of one size in the result."""
    tensor = torch.zeros(byte_count // FP32_BYTES, device=device)
    with progress.stage("warmup"):
        warmup_seconds = all_reduce_seconds(tensor, spec.warmup_steps)
    with progress.stage("measured"):
        seconds = all_reduce_seconds(tensor, spec.measured_steps)
    return {"bytes": byte_count, "warmup_seconds": warmup_seconds, "seconds": seconds}


def all_reduce_seconds(tensor: torch.Tensor, count: int) -> list[float]:
    """Seconds of each of `count` consecutive all-reduces. On a GPU, between events on the stream, so that none waits
    for the host."""
    wait_for_all(tensor.device)
    moments = [moment(tensor.device)]
    for _ in range(count):
        dist.all_reduce(tensor)
        moments.append(moment(tensor.device))
    wait_for_all(tensor.device)
    return list(starmap(seconds_between, pairwise(moments)))


if __name__ == "__main__":
    main()
