"""What the stage memory records of a process, from before its model is made to the end of its last measured step.

memory.json              what the allocator counted
memory_history.json.gz   every allocation and release in order, with the ranges that were open; no addresses
memory_snapshot.pickle   on a GPU, for pytorch.org/memory_viz; also where memory ran out

An event is one allocation or one release; its number is its position. A range contains the events from `opened` to the
last one before `closed`. Memory of NCCL, oneDNN and of the CUDA context is not seen: only the driver's number has it.
"""

import argparse
import gzip
import json
import pickle
from bisect import bisect_left
from operator import attrgetter
from pathlib import PurePath
from typing import Any, NamedTuple

import torch
from torch._C._profiler import _EventType, _RecordFunctionFast  # unlike record_function, it is not an operator itself
from torch.autograd.profiler import profile

from cs336_model import ranges
from cs336_model.benchmark import Subject
from cs336_model.device import Place
from cs336_model.optimizer import AdamW, take_local
from cs336_model.results import Memory
from cs336_model.spec import Spec
from kernel_tables.marks import Emitter


def measure(spec: Spec, place: Place, options: argparse.Namespace, subject_class: type[Subject]) -> Memory:
    """The result of the recorded steps of a run; writes the history to options.capture, and the snapshot next to it."""
    device, history = place.device, options.capture
    recorder = GpuRecorder(device) if device.type == "cuda" else CpuRecorder()
    ranges.emit_ranges(recorder.emitter)
    try:
        with recorder:
            subject = subject_class(spec, device)
            subject.run_steps("warmup", spec.warmup_steps)
            subject.wait_for_all()
            subject.run_steps("measure", spec.measured_steps)
    finally:
        if device.type == "cuda":  # where memory ran out, it shows what took it
            history.with_name("memory_snapshot.pickle").write_bytes(pickle.dumps(strip_paths(recorder.snapshot)))
    events, spans, counts = recorder.read()
    history.write_bytes(pack(events, spans, list_held(subject)))
    return Memory(status="complete", parameters=subject.parameter_count, **counts)


class Event(NamedTuple):
    """An allocation of `size` bytes, or the release of what is at the address."""

    allocates: bool
    address: int
    size: int
    time_ns: int


class GpuRecorder:
    """Records the history of PyTorch's caching allocator, and how many events it has counted at both ends of ranges."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.emitter = device, Emitter(self.open_span, self.close_span)
        self.spans: list[dict[str, Any]] = []
        self.open_spans: list[int] = []
        self.earlier_events = 0

    def __enter__(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)
        self.earlier_events = self.count_events()
        torch.cuda.memory._record_memory_history(stacks="python", context="alloc")

    def __exit__(self, *error: object) -> None:
        stats, (free, total) = torch.cuda.memory_stats(self.device), torch.cuda.mem_get_info(self.device)
        kinds = ("requested", "allocated", "reserved")
        self.counts = {f"{kind}_peak_bytes": stats[f"{kind}_bytes.all.peak"] for kind in kinds}
        self.counts["driver_used_bytes"] = total - free
        snapshot = torch.cuda.memory._snapshot(self.device)
        self.snapshot = {name: snapshot[name] for name in ("segments", "device_traces")}  # without settings
        torch.cuda.memory._record_memory_history(None)

    def count_events(self) -> int:
        """Allocations and completed releases until now."""
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        # of releases, "allocation" counts requests and "active" those that are completed
        return stats["allocation"]["all"]["allocated"] + stats["active"]["all"]["freed"] - self.earlier_events

    def open_span(self, name: str) -> None:
        inside, opened = self.open_spans[-1] if self.open_spans else None, self.count_events()
        self.open_spans.append(len(self.spans))
        self.spans.append({"name": name, "inside": inside, "opened": opened, "closed": opened})

    def close_span(self) -> None:
        self.spans[self.open_spans.pop()]["closed"] = self.count_events()

    def read(self) -> tuple[list[Event], list[dict], dict[str, int]]:
        """Events, ranges, and what the allocator counted, in bytes."""
        actions = {"alloc": True, "free_completed": False}  # a release counts when it is completed, as in the counts
        trace = [one for one in self.snapshot["device_traces"][self.device.index] if one["action"] in actions]
        events = [Event(actions[one["action"]], one["addr"], one["size"], 1000 * one["time_us"]) for one in trace]
        return events, self.spans, self.counts


class CpuRecorder(profile):
    """Records what PyTorch's profiler sees of memory; it does not see what libraries allocate themselves."""

    SPAN = "range of the program: "  # beginning of names in the profile

    def __init__(self) -> None:
        super().__init__(use_kineto=True, profile_memory=True)
        self.open_spans: list[_RecordFunctionFast] = []
        self.emitter = Emitter(self.open_span, lambda: self.open_spans.pop().__exit__(None, None, None))

    def open_span(self, name: str) -> None:
        self.open_spans.append(_RecordFunctionFast(self.SPAN + name))
        self.open_spans[-1].__enter__()

    def read(self) -> tuple[list[Event], list[dict], dict[str, int]]:
        """Events, ranges, and the peak in bytes."""
        found, nodes = [], []  # (event, bytes of all live tensors after it); of ranges
        stack = [*self.kineto_results.experimental_event_tree()]
        while stack:
            node = stack.pop()
            kind, fields = node.typed
            if kind == _EventType.Allocation and fields.device.type == "cpu":
                size = fields.alloc_size  # a release adds a negative size
                found.append((Event(size > 0, fields.ptr, abs(size), node.start_time_ns), fields.total_allocated))
            elif node.name.startswith(self.SPAN):
                nodes.append(node)
            stack += reversed(node.children)
        found.sort(key=lambda one: one[0].time_ns)
        events, totals = map(list, zip(*found, strict=True))
        # an earlier profile of this process may have left something in the totals
        before = totals[0] - (events[0].size if events[0].allocates else -events[0].size)
        return events, self.list_spans(nodes, events), {"requested_peak_bytes": max(totals) - before}

    def list_spans(self, nodes: list[Any], events: list[Event]) -> list[dict]:
        """The ranges in the order of their opening. One of the backward pass may begin in one node of autograd and end
        in another, so what it contains follows from times, not from the profiler's tree."""
        nodes.sort(key=attrgetter("start_time_ns"))
        times, spans, around = [event.time_ns for event in events], [], []
        for number, node in enumerate(nodes):
            while around and nodes[around[-1]].end_time_ns <= node.start_time_ns:
                around.pop()
            opened, closed = (bisect_left(times, time) for time in (node.start_time_ns, node.end_time_ns))
            name, inside = node.name.removeprefix(self.SPAN), around[-1] if around else None
            spans.append({"name": name, "inside": inside, "opened": opened, "closed": closed})
            around.append(number)
        return spans


def strip_paths(value: Any) -> Any:
    """A snapshot whose files have names without folders: results are published."""
    if isinstance(value, dict):
        names = {"filename": PurePath(value["filename"]).name} if "filename" in value else {}
        return {key: strip_paths(one) for key, one in value.items()} | names
    return [strip_paths(one) for one in value] if isinstance(value, (list, tuple)) else value


def list_held(subject: Subject) -> dict[int, str]:
    """The category of the storages that the subject holds now, by address."""
    if isinstance(optimizer := subject.optimizer, AdamW):
        moments = [*optimizer.first_moments, *optimizer.second_moments]
    else:
        moments = [value for state in optimizer.state.values() for value in state.values()] if optimizer else []
    gradients = [parameter.grad for parameter in subject.parameters if parameter.grad is not None]
    data = [subject.inputs, subject.targets, *subject.model.buffers(), *subject.losses]
    tensors = {"parameters": subject.parameters, "gradients": gradients, "optimizer state": moments, "data": data}
    held = [(category, tensor) for category, values in tensors.items() for tensor in values]
    return {take_local(tensor).untyped_storage().data_ptr(): category for category, tensor in held}


def pack(events: list[Event], spans: list[dict], held: dict[int, str]) -> bytes:
    """The history as a gzipped JSON of columns, in which each allocation has the number of its release, and not its
    address. Releases of what was made before the recording are left out."""
    freed: dict[int, int | None] = {}  # by number of the allocation
    live: dict[int, int] = {}  # numbers of allocations by address
    for number, event in enumerate(events):
        if event.address in live:  # if it allocates, a release was not seen
            freed[live.pop(event.address)] = number
        if event.allocates:
            live[event.address], freed[number] = number, None
    holder = {live[address]: category for address, category in held.items() if address in live}
    innermost: list[int | None] = [None] * len(events)
    for number, span in enumerate(spans):  # in the order in which they opened: inner ranges overwrite outer ones
        innermost[span["opened"] : span["closed"]] = [number] * (span["closed"] - span["opened"])
    record = {
        "time_us": [(event.time_ns - events[0].time_ns) / 1e3 for event in events],
        "allocations": {
            "bytes": [events[number].size for number in freed],
            "made": list(freed),
            "freed": list(freed.values()),
            "range": [innermost[number] for number in freed],
            "held": [holder.get(number) for number in freed],
        },
        "ranges": {name: [span[name] for span in spans] for name in ("name", "inside", "opened", "closed")},
    }
    # without the time: equal records are equal files
    return gzip.compress(json.dumps(record, separators=(",", ":")).encode(), mtime=0)
