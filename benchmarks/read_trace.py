"""Measures how fast a trace of PyTorch is read: `python benchmarks/read_trace.py [--megabytes 100] [--repeats 3]`.

`kernel-tables ranges` and a bare `json.load` read a made-up trace with Python stacks, forward and backward, as PyTorch
writes it. Both are whole processes on one core; the fastest of the repeats counts.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from read_capture import cost

HEAD = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A GPU"}], "with_stack": 1, "traceEvents": [\n'
FIRST_US = 4_563_979_318_000  # to which times of events are relative
SHAPES = '"Input type": ["float", "float", "float"], "Input Dims": [[256], [1024, 256], [256, 256]]'
LAUNCH_DETAILS = '"grid": [8, 8, 1], "block": [128, 1, 1], "registers per thread": 16, "shared memory": 0'
KERNEL = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(cutlass_80_simt_sgemm_128x64_8x5::Params)"


def write_trace(path: Path, megabytes: float) -> None:
    with path.open("w") as file:
        file.write(HEAD)
        step = 0
        while file.tell() < megabytes * 1e6:
            file.write(",\n".join(step_events(step)) + ",\n")
            step += 1
        file.write(event("user_annotation", "end", step * 10_000, 1) + '\n], "displayTimeUnit": "ms"}\n')


def step_events(step: int, blocks: int = 24, operators: int = 8, frames: int = 12) -> Iterator[str]:
    """A step of 10 ms: blocks forward, then backward on another thread; a kernel for each operator."""
    launches = blocks * operators  # in each of the two passes
    began, first_id = step * 10_000, 1 + step * 2 * launches
    yield event("user_annotation", f"ProfilerStep#{step}", began, 9_990)
    for block in range(blocks):
        start = began + 200 * block
        yield event("python_function", f"nn.Module: Block_{block}", start, 190, f'"Python module id": {block}')
        for frame in range(frames):
            name = f"torch/nn/modules/module.py({1700 + frame}): _call_impl"
            yield event("python_function", name, start + frame, 189 - 2 * frame, '"Python parent id": 7')
        for number in range(operators):
            launch = first_id + block * operators + number
            yield from launch_events("aten::addmm", start + 20 + 20 * number, launch, f'"Sequence number": {launch}', 1)
    for index, launch in enumerate(reversed(range(first_id, first_id + launches))):
        node, name = f'"Sequence number": {launch}, "Fwd thread id": 1', "autograd::engine::evaluate_function: Addmm"
        yield from launch_events(name, began + 5000 + 20 * index, launch + launches, node, 2)


def launch_events(operator: str, start: int, launch: int, args: str, thread: int) -> Iterator[str]:
    """An operator, its launch, the kernel, and the arrow from the launch to the kernel."""
    yield event("cpu_op", operator, start, 18, f'"External id": {launch}, {args}, {SHAPES}', thread)
    yield event("cuda_runtime", "cudaLaunchKernel", start + 3, 6, f'"cbid": 211, "correlation": {launch}', thread)
    details = f'"device": 0, "context": 1, "stream": 7, "correlation": {launch}, {LAUNCH_DETAILS}'
    yield event("kernel", KERNEL, start + 10, 15, details, thread=7, process=0)
    for phase, time_us in (("s", start + 3), ("f", start + 10)):
        arrow = f'"ph": "{phase}", "id": {launch}, "pid": 1, "tid": {thread}, "ts": {FIRST_US + time_us}.125'
        yield f'  {{\n    {arrow},\n    "cat": "ac2g", "name": "ac2g"\n  }}'


def event(category: str, name: str, start: int, length: int, args: str = "", thread: int = 1, process: int = 1) -> str:
    head = f'"ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, "tid": {thread}'
    times = f'"ts": {FIRST_US + start}.125, "dur": {length}.375'
    return f'  {{\n    {head},\n    {times},\n    "args": {{\n      {args}\n    }}\n  }}'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # of the processes below, too
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        write_trace(trace, options.megabytes)
        size = trace.stat().st_size
        json_load = "import json, sys; json.load(open(sys.argv[1]))"
        _, *bare = cost([sys.executable, "-c", json_load, str(trace)], options.repeats)
        _, *ours = cost([sys.executable, "-m", "kernel_tables", "ranges", str(trace)], options.repeats)
    speeds = [size / 1e6 / cpu_s for cpu_s, _ in (ours, bare)]
    print(f"a trace of {size / 1e6:.0f} MB; kernel-tables ranges, and json.load:")
    print(f"MB per second of the processor: {speeds[0]:.0f}, {speeds[1]:.0f}: ratio {speeds[0] / speeds[1]:.2f}")
    print(f"peak memory: {ours[1] / 1e6:.0f} MB, {bare[1] / 1e6:.0f} MB; ratio to the file {ours[1] / size:.2f}")
