"""One rank of a measurement of all-reduce alone: fp32 sums of given sizes, each repeated, and what they took as JSON.

Started by cs336_model.program.parallel.launch, as the ranks of a run are.
"""

import argparse
import json
from itertools import pairwise
from pathlib import Path
from timeit import default_timer
from typing import Any

import torch
import torch.distributed as dist

from cs336_model.program.benchmark import write_result
from cs336_model.program.device import machine_facts, resolve_device
from cs336_model.program.lease import take_lease
from cs336_model.program.parallel.ranks import process_group, this_rank, wait_for_all
from cs336_model.program.process_cost import process_age_seconds
from cs336_model.program.stacks import print_stacks_before

FP32_BYTES = 4


def main(arguments: list[str] | None = None) -> None:
    """Measures every size and writes the result of this rank."""
    parser = argparse.ArgumentParser(prog="python -m cs336_model.program.parallel.all_reduce")
    parser.add_argument("--spec", required=True, type=json.loads, help="device, sizes in bytes, warm-up and repeats")
    parser.add_argument("--output", required=True, type=Path, help="where the result is written, as JSON")
    parser.add_argument("--lease", type=Path, help="the socket where this program asks for its GPUs")
    parser.add_argument("--time-limit-s", type=float, help="when whoever starts this program ends it")
    options = parser.parse_args(arguments)
    started = process_age_seconds()
    take_lease(options.lease)
    print_stacks_before(options.time_limit_s, started)
    spec, device = options.spec, resolve_device(options.spec["device"], this_rank().number)
    with process_group(device):
        sizes = [{"bytes": size, "seconds": repeated(size, spec, device)} for size in spec["bytes"]]
        write_result({"status": "complete", "sizes": sizes, "machine": machine_facts(device)}, options.output)


def repeated(byte_count: int, spec: dict[str, Any], device: torch.device) -> list[float]:
    """Seconds of each all-reduce of so many bytes, one right behind the other, after those that warm up. On a GPU
    between events on the stream, so that none waits for the host."""
    tensor = torch.zeros(byte_count // FP32_BYTES, device=device)
    for _ in range(spec["warmup"]):
        dist.all_reduce(tensor)
    wait_for_all(device)
    moments = [_now(device)]
    for _ in range(spec["repeats"]):
        dist.all_reduce(tensor)
        moments.append(_now(device))
    wait_for_all(device)
    on_gpu = device.type == "cuda"
    return [(a.elapsed_time(b) / 1000) if on_gpu else b - a for a, b in pairwise(moments)]


def _now(device: torch.device) -> Any:
    if device.type != "cuda":
        return default_timer()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


if __name__ == "__main__":
    main()
