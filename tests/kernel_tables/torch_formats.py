"""Traces as torch.profiler has written them since 2021: one small program, in the words of each version."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple


class Style(NamedTuple):
    """How a version writes times, and what surrounds the events."""

    first_us: str
    whole: bool = False
    facts: str = ""


STYLES = {
    "2022, whole microseconds": Style("1661203462584767", whole=True, facts=', "traceName": "a.json"'),
    "2024, three decimals since 1970": Style("1712195495519689.049", facts=', "displayTimeUnit": "ns"'),
    "2026, since a base": Style(
        "4563979318882.246", facts=', "displayTimeUnit": "ms", "baseTimeNanoseconds": 1790857026000000000'
    ),
}


def trace_text(style: Style) -> str:
    """The program's trace: a step, in it five kernels on two streams, a copy, and one kernel without a call."""
    events = []

    def us(microseconds) -> str:
        return str(int(Decimal(microseconds))) if style.whole else str(microseconds)

    def at(start: str) -> str:
        return us(Decimal(style.first_us) + Decimal(start))

    def add(category: str, name: str, start: str, length: str, thread: int, args: str = "", pid: int = 1) -> None:
        head = f'"ph": "X", "cat": "{category}", "name": "{name}", "pid": {pid}, "tid": {thread}'
        times = f'"ts": {at(start)}, "dur": {us(length)}'
        events.append(f'{{\n    {head},\n    {times},\n    "args": {{ {args} }}\n  }}')

    add("user_annotation", "ProfilerStep#3", "0", "100", 1117)
    durations = ("4.512", "0.896", "12.064", "3.2", "0.001", "7.007")
    for number, duration in enumerate(durations):
        thread, stream, start = 1142 if number >= 3 else 1117, 7 + number % 2, f"{5 + 10 * number}"
        is_last = number == len(durations) - 1  # launched before the trace began
        if not is_last:
            shapes = '"Input Dims": [[4, 256], [256, 8], []]'
            add("cpu_op", f"aten::op{number}", start, "8", thread, f'{shapes}, "External id": {number + 1}')
            call = f'"cbid": 211, "correlation": {100 + number}'
            add("cuda_runtime", "cudaLaunchKernel", f"{start}.5", "2.25", thread, call)
        place = f'"device": 0, "context": 1, "stream": {stream}, "correlation": {5 if is_last else 100 + number}'
        more = '"grid": [2, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 5.25'
        name = f"void kernel{number}<float>(int, {{lambda()#1}})"
        add("kernel", name, f"{7 + 10 * number}", duration, stream, f"{place}, {more}", 0)
    add("cuda_runtime", "cudaMemcpyAsync", "60", "3", 1117, '"correlation": 120')
    copy = '"device": 0, "stream": 7, "correlation": 120, "bytes": 4096'
    add("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "70", "1.5", 7, copy, 0)
    add("cuda_sync", 'Sync \\"quoted\\" \\u00e9', "90", "1", 1)
    events += [
        f'{{"ph": "s", "id": 100, "pid": 1, "tid": 1117, "ts": {at("5")}, "cat": "ac2g", "name": "ac2g"}}',
        f'{{"name": "process_name", "ph": "M", "ts": {at("0")}, "pid": 1, "tid": 0, "args": {{"name": "x"}}}}',
        f'{{"ph": "X", "cat": "Trace", "ts": {at("0")}, "dur": 1, "pid": "Spans", "tid": "PyTorch"}}',
        f'{{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": {at("99")}}}',
    ]
    head = '{\n"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "A GPU"}],\n"traceEvents": [\n'
    return head + ",\n  ".join(events) + f"\n]{style.facts}}}\n"


def write_trace(path: Path, style: Style) -> Path:
    """The trace at the path, gzipped where its name says so."""
    text = trace_text(style).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def kernels_by_brute_force(text: bytes | str) -> tuple[int, int]:
    """(kernels, the sum of their durations in nanoseconds) of a trace's JSON."""
    content = json.loads(text, parse_float=Decimal)
    events = content["traceEvents"] if isinstance(content, dict) else content
    kernels = [event for event in events if event.get("cat") in ("kernel", "Kernel") and event.get("ph") == "X"]
    return len(kernels), sum(int((Decimal(event["dur"]) * 1000).to_integral_value()) for event in kernels)
