"""Measures time and memory to read a trace of torch.profiler on one core, compared with json.load.

    python -m benchmarks.torch_traces [TRACE] [--megabytes 250] [--repeats 3]

Without a TRACE one is generated: steps of a model made of blocks, forward and backward, with Python stacks, as Kineto
writes them. If Holistic Trace Analysis is installed (the package HolisticTraceAnalysis), its parser is also measured.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness import PYTHON, Cost, Costs, run

JSON_LOAD_CODE = "import json, sys; json.load(open(sys.argv[1]))"
HTA_CODE = """
import sys
from hta.common.trace_parser import parse_trace_dataframe
from hta.configs.parser_config import ParserConfig
parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())
"""
TABLES_CODE = "import sys; from kernel_tables.reading.source import sqlite_file\nwith sqlite_file(sys.argv[1]): pass"
BLOCKS, OPERATORS, FRAMES = 24, 8, 12  # blocks of a step; operators and Python functions of a block
HEAD = '{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A GPU"}], "with_stack": 1, "traceEvents": [\n'
MEGABYTE = 1e6
FIRST_US = 4_563_979_318_000  # to which all times of events are relative


def main(trace: Path | None = None, *, megabytes: float = 250, repeats: int = 3) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = trace or _write_trace(Path(folder) / "trace.json", megabytes)
        size_mb = path.stat().st_size / MEGABYTE
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # the commands inherit it
        costs = Costs(f"\nA trace of {size_mb:.0f} MB, on one core", "cpu_s")
        commands = {
            "json.load": [sys.executable, "-c", JSON_LOAD_CODE, path],
            "kernel_tables: the tables of a capture": [sys.executable, "-c", TABLES_CODE, path],
            "kernel_tables ranges": [*PYTHON, "kernel_tables", "ranges", path, "--format", "csv"],
            "kernel_tables diagnose": [*PYTHON, "kernel_tables", "diagnose", path, "--format", "csv"],
        }
        if find_spec("hta"):
            commands["HTA: parse_trace_dataframe"] = [sys.executable, "-c", HTA_CODE, path]
        results = {name: costs.measure(name, command, repeats=repeats) for name, command in commands.items()}
    print()
    for name, cost in results.items():
        if isinstance(cost, Cost):
            speed, memory = size_mb / cost.cpu_s, cost.peak_mib * 2**20 / MEGABYTE / size_mb
            print(f"{name}: {speed:.0f} MB per second of the core, {memory:.2f} times the file in memory")


def _write_trace(path: Path, megabytes: float) -> Path:
    with path.open("w") as file:
        file.write(HEAD)
        number = 0
        while file.tell() < megabytes * MEGABYTE:
            file.write(",\n".join(_step_events(number)) + ",\n")
            number += 1
        file.write(_event("user_annotation", "end", number * 10_000, 1) + '\n], "displayTimeUnit": "ms"}\n')
    return path


def _step_events(number: int) -> Iterator[str]:
    """A step of 10 ms: blocks forward, then backward on another thread; a kernel for each operator. Times are µs."""
    launches = BLOCKS * OPERATORS  # in each of the two passes
    step_start, first_id = number * 10_000, number * 2 * launches
    yield _event("user_annotation", f"ProfilerStep#{number}", step_start, 9_990)
    for block in range(BLOCKS):
        start = step_start + 200 * block
        yield _event("python_function", f"nn.Module: Block_{block}", start, 190, f'"Python module id": {block}')
        for frame in range(FRAMES):
            name = f"torch/nn/modules/module.py({1700 + frame}): _call_impl"
            yield _event("python_function", name, start + frame, 189 - 2 * frame, '"Python parent id": 7')
        for operator in range(OPERATORS):
            launch_id = first_id + block * OPERATORS + operator
            node_number = f'"Sequence number": {launch_id}'
            yield from _launch_events("aten::addmm", start + 20 + 20 * operator, launch_id, node_number, thread=1)
    for index, launch_id in enumerate(reversed(range(first_id, first_id + launches))):
        forward_node = f'"Sequence number": {launch_id}, "Fwd thread id": 1'
        name = "autograd::engine::evaluate_function: AddmmBackward0"
        yield from _launch_events(name, step_start + 5000 + 20 * index, launch_id + launches, forward_node, thread=2)


def _launch_events(operator: str, start: int, launch_id: int, args: str, *, thread: int) -> Iterator[str]:
    """An operator, its launch, the kernel, and the flow from the launch to the kernel."""
    shapes = '"Input type": ["float", "float", "float"], "Input Dims": [[256], [1024, 256], [256, 256]]'
    yield _event("cpu_op", operator, start, 18, f'"External id": {launch_id}, {args}, {shapes}', thread=thread)
    call_args = f'"cbid": 211, "correlation": {launch_id}'
    yield _event("cuda_runtime", "cudaLaunchKernel", start + 3, 6, call_args, thread=thread)
    kernel_args = (
        f'"device": 0, "context": 1, "stream": 7, "correlation": {launch_id}, "grid": [8, 8, 1], "block": [128, 1, 1],'
        ' "registers per thread": 16, "shared memory": 0'
    )
    name = "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nt_align1>(cutlass_80_simt_sgemm_128x64_8x5::Params)"
    yield _event("kernel", name, start + 10, 15, kernel_args, thread=7, process=0)
    for phase, time in (("s", start + 3), ("f", start + 10)):
        flow = f'"ph": "{phase}", "id": {launch_id}, "pid": 1, "tid": {thread}, "ts": {FIRST_US + time}.125'
        yield f'  {{\n    {flow},\n    "cat": "ac2g", "name": "ac2g"\n  }}'


def _event(
    category: str, name: str, start_us: int, duration_us: int, args: str = "", *, thread: int = 1, process: int = 1
) -> str:
    head = f'"ph": "X", "cat": "{category}", "name": "{name}", "pid": {process}, "tid": {thread}'
    times = f'"ts": {FIRST_US + start_us}.125, "dur": {duration_us}.375'
    return f'  {{\n    {head},\n    {times},\n    "args": {{\n      {args}\n    }}\n  }}'


if __name__ == "__main__":
    run(main)
