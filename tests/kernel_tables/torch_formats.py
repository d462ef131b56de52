"""Traces as torch.profiler has written them since 2021: one small program, in the words of each version."""

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

KERNELS_US = ("4.512", "0.896", "12.064", "3.2", "0.001")  # durations
FORWARD, BACKWARD = 1117, 1142  # threads
DEVICE = {"id": 0, "name": "A GPU", "totalGlobalMem": 1 << 34, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
SYNCHRONISE = '{"ph": "X", "cat": "%s", "name": "Sync \\"quoted\\" \\u00e9", "pid": 1, "tid": 1, "ts": %s, "dur": 1}'


class Style:
    """How a version writes categories, times and what surrounds the events."""

    def __init__(self, *, first_us: str, whole: bool = False, old: bool = False, api: str = "cuda", facts: str = ""):
        self.first_us, self.whole, self.old, self.api, self.facts = first_us, whole, old, api, facts

    def category(self, name: str) -> str:
        of_2021 = {"kernel": "Kernel", "cuda_runtime": "Runtime", "gpu_memcpy": "Memcpy", "cpu_op": "Operator"}
        return of_2021.get(name, name) if self.old else name

    def us(self, microseconds: str) -> str:
        return str(int(Decimal(microseconds))) if self.whole else microseconds

    def at(self, microseconds: str) -> str:
        return self.us(str(Decimal(self.first_us) + Decimal(microseconds)))


STYLES = {
    "2021, other names of categories": Style(first_us="1665536373729077", whole=True, old=True),
    "2022, whole microseconds": Style(first_us="1661203462584767", whole=True, facts=', "traceName": "a.json"'),
    "2024, three decimals since 1970": Style(first_us="1712195495519689.049", facts=', "displayTimeUnit": "ns"'),
    "2026, since a base": Style(
        first_us="4563979318882.246", facts=', "displayTimeUnit": "ms", "baseTimeNanoseconds": 1790857026000000000'
    ),
    "ROCm": Style(first_us="4203669603438.301", api="hip"),
}


def trace_text(style: Style, *, indent: str = "  ") -> str:
    """The program's trace: a step, in it five kernels on two streams, a copy, and one kernel without a call."""
    events = [*_host(style), *_device(style), SYNCHRONISE % ("cuda_sync", style.at("90")), *_others(style)]
    head = f'{{\n"schemaVersion": 1, "deviceProperties": [{json.dumps(DEVICE)}],\n"traceEvents": [\n'
    return head + f",\n{indent}".join(events) + f"\n]{style.facts}}}\n"


def write_trace(path: Path, style: Style) -> Path:
    """The trace at the path, gzipped where its name says so."""
    text = trace_text(style).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def _host(style: Style) -> Iterator[str]:
    yield _event(style, "user_annotation", "ProfilerStep#3", "0", "100", FORWARD, "")
    for number in range(len(KERNELS_US)):
        start = str(5 + 10 * number)
        thread = BACKWARD if number >= 3 else FORWARD
        shapes = '"Input Dims": [[4, 256], [256, 8], []], '
        yield _event(style, "cpu_op", f"aten::op{number}", start, "8", thread, f'{shapes}"External id": {number + 1}')
        call = f'"cbid": 211, "correlation": {100 + number}'
        yield _event(style, "cuda_runtime", f"{style.api}LaunchKernel", f"{start}.5", "2.25", thread, call)
    yield _event(style, "cuda_runtime", f"{style.api}MemcpyAsync", "60", "3", FORWARD, '"correlation": 120')


def _device(style: Style) -> Iterator[str]:
    for number, duration in enumerate([*KERNELS_US, "7.007"]):  # the last one was launched before the trace began
        stream = 7 + number % 2
        call = 100 + number if number < len(KERNELS_US) else 5
        place = f'"device": 0, "context": 1, "stream": {stream}, "correlation": {call}, '
        more = '"grid": [2, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 5.25'
        name = f"void kernel{number}<float>(int, {{lambda()#1}})"
        yield _event(style, "kernel", name, str(7 + 10 * number), duration, stream, place + more, 0)
    copy = '"device": 0, "stream": 7, "correlation": 120, "bytes": 4096'
    yield _event(style, "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", "70", "1.5", 7, copy, 0)


def _others(style: Style) -> Iterator[str]:
    yield f'{{"ph": "s", "id": 100, "pid": 1, "tid": {FORWARD}, "ts": {style.at("5")}, "cat": "ac2g", "name": "ac2g"}}'
    yield f'{{"name": "process_name", "ph": "M", "ts": {style.at("0")}, "pid": 1, "tid": 0, "args": {{"name": "x"}}}}'
    yield f'{{"ph": "X", "cat": "Trace", "ts": {style.at("0")}, "dur": 1, "pid": "Spans", "tid": "PyTorch"}}'
    yield f'{{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": {style.at("99")}}}'


def _event(style: Style, category: str, name: str, start: str, us: str, thread: int, args: str, pid: int = 1) -> str:
    times = f'"ts": {style.at(start)}, "dur": {style.us(us)}'
    head = f'"ph": "X", "cat": "{style.category(category)}", "name": "{name}", "pid": {pid}, "tid": {thread}'
    return f'{{\n    {head},\n    {times},\n    "args": {{ {args} }}\n  }}'


def kernels_by_brute_force(text: bytes | str) -> tuple[int, int]:
    """(kernels, the sum of their durations in nanoseconds) of a trace's JSON."""
    content = json.loads(text, parse_float=Decimal)
    events = content["traceEvents"] if isinstance(content, dict) else content
    kernels = [event for event in events if event.get("cat") in ("kernel", "Kernel") and event.get("ph") == "X"]
    return len(kernels), sum(int((Decimal(event["dur"]) * 1000).to_integral_value()) for event in kernels)
