"""The events of a Chrome trace that PyTorch's profiler exported, with integer nanoseconds."""

import json
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from kernel_tables.kineto.names import decoded

CPU_CATEGORIES = {"user_annotation", "cpu_op", "cuda_runtime", "cuda_driver"}
GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}


@dataclass(frozen=True)
class Event:
    """One event with a duration. Its process and thread are those of the CPU side; a GPU event has neither (0).
    `sequence` is Kineto's own order of starts, which settles equal times."""

    category: str
    name: str
    process: int
    thread: int
    start_ns: int
    end_ns: int
    args: dict[str, Any]

    @property
    def global_thread(self) -> int:
        return global_thread(self.process, self.thread)

    @property
    def correlation(self) -> int | None:
        return self.args.get("correlation")

    @property
    def sequence(self) -> int:
        return self.args.get("External id", 0)


class Trace:
    """The events by category, and the devices that Kineto saw."""

    def __init__(self, events: list[Event], devices: list[dict[str, Any]], began_utc_ns: int | None = None) -> None:
        self.events = events
        self.devices = devices
        self.began_utc_ns = began_utc_ns  # when the time of the first event was, in nanoseconds since 1970
        self._by_category: dict[str, list[Event]] = defaultdict(list)
        for event in events:
            self._by_category[event.category].append(event)

    @property
    def process(self) -> int:
        """The one process that the profiler ran in."""
        return next(event.process for event in self.events if event.category in CPU_CATEGORIES)

    def of(self, *categories: str) -> list[Event]:
        """The events of these categories, in the order of the trace."""
        return [event for category in categories for event in self._by_category[category]]


def global_thread(process: int, thread: int) -> int:
    """globalTid as nsys packs it: thread in bits 0-23, process in bits 24-47; with thread 0 it is the globalPid."""
    return (process << 24) | (thread & 0xFFFFFF)


def read_trace(path: Path) -> Trace:
    """The trace in a JSON file, its times in nanoseconds since the first event that is kept."""
    with path.open() as file:
        # Decimal, not float: microseconds since boot with three decimals may not fit 53 bits.
        content = json.load(file, parse_float=Decimal)
    kept = [item for item in content["traceEvents"] if item.get("cat") in CPU_CATEGORIES | GPU_CATEGORIES]
    complete = [item for item in kept if item["ph"] == "X"]
    epoch_ns = min((_nanoseconds(item["ts"]) for item in complete), default=0)
    base_ns = content.get("baseTimeNanoseconds")
    began_utc_ns = None if base_ns is None else base_ns + epoch_ns
    return Trace([_event(item, epoch_ns) for item in complete], content.get("deviceProperties", []), began_utc_ns)


def _event(item: dict[str, Any], epoch_ns: int) -> Event:
    on_cpu = item["cat"] in CPU_CATEGORIES
    start_ns = _nanoseconds(item["ts"]) - epoch_ns
    return Event(
        category=item["cat"],
        name=decoded(item["name"]),
        process=item["pid"] if on_cpu else 0,
        thread=item["tid"] if on_cpu else 0,
        start_ns=start_ns,
        end_ns=start_ns + _nanoseconds(item["dur"]),
        args=item.get("args", {}),
    )


def _nanoseconds(microseconds: Decimal | int) -> int:
    return int(Decimal(microseconds).scaleb(3))
