"""What the stage memory records of a process, from before its model is made to the end of its last measured step.

memory.json              what the allocator counted, and the types of the model's numbers
memory_history.json.gz   every allocation and release in order, with the ranges that were open; no addresses
memory_snapshot.pickle   on a GPU, for pytorch.org/memory_viz; also where memory ran out

An event is one allocation or one release; its number is its position. A range contains the events from `opened` to the
last one before `closed`.
"""

import gzip
import json
import pickle
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from operator import attrgetter
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._profiler import _EventType, _RecordFunctionFast  # unlike record_function, it is not an operator itself
from torch.autograd.profiler import profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from cs336_model import ranges
from cs336_model.benchmark import Subject
from cs336_model.optimizer import AdamW, take_local
from cs336_model.results import Memory
from cs336_model.spec import Spec
from kernel_tables import marks
from kernel_tables.marks import Emitter


def measure(spec: Spec, device: torch.device, history: Path, subject_class: type[Subject] = Subject) -> Memory:
    """The result of the recorded steps of a run; writes the history to this path, and the snapshot next to it."""
    recorder = GpuRecorder(device) if device.type == "cuda" else CpuRecorder()
    ranges.emit_ranges(recorder.emitter)
    is_eager = spec.compile == "off"  # under a mode of the dispatcher, a compiled model would run uncompiled
    try:
        with recorder, Operators(recorder.operator) if is_eager else nullcontext():
            subject = subject_class(spec, device)
            types = Types(subject.model) if is_eager else None
            subject.run_steps("warmup", spec.warmup_steps)
            subject.wait_for_all()
            subject.run_steps("measure", spec.measured_steps)
    finally:
        if device.type == "cuda":  # where memory ran out, it shows what took it
            history.with_name("memory_snapshot.pickle").write_bytes(pickle.dumps(strip_snapshot(recorder.snapshot)))
    events, spans, counts = recorder.read()
    history.write_bytes(pack(events, spans, list_held(subject)))
    facts = {"parameters": subject.parameter_count, "dtypes": types.list_rows(subject) if types else []}
    return Memory(status="complete", not_seen=list(recorder.not_seen), **facts, **counts)


class Event(NamedTuple):
    """An allocation of `size` bytes, or the release of what is at the address."""

    allocates: bool
    address: int
    size: int
    time_us: float
    operator: str | None = None
    line: str | None = None  # of Python, which called the operator


class GpuRecorder:
    """Records the history of PyTorch's caching allocator, and how many events it has counted at both ends of ranges and
    operators: a thread does not tell the range, since the backward pass runs in one of its own."""

    not_seen = ("memory of NCCL and of the CUDA context, which the allocator does not see; the driver's number has it",)

    def __init__(self, device: torch.device) -> None:
        self.device, self.emitter = device, Emitter(self.open_span, self.close_span)
        self.spans: list[dict[str, Any]] = []
        self.open_spans: list[int] = []  # of all threads
        self.thread = threading.local()  # `spans`: those that the calling thread opened and has not closed
        self.operators: list[tuple[int, int, str, str | None]] = []  # first event, event after, name, line
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
        self.snapshot = torch.cuda.memory._snapshot(self.device)
        torch.cuda.memory._record_memory_history(None)

    def count_events(self) -> int:
        """Allocations and completed releases until now."""
        stats = torch.cuda.memory_stats_as_nested_dict(self.device)
        # of releases, "allocation" counts requests and "active" those that are completed
        return stats["allocation"]["all"]["allocated"] + stats["active"]["all"]["freed"] - self.earlier_events

    def open_span(self, name: str) -> None:
        inside = self.open_spans[-1] if self.open_spans else None
        self.open_spans.append(len(self.spans))
        self.thread.__dict__.setdefault("spans", []).append(len(self.spans))
        self.spans.append({"name": name, "inside": inside, "opened": self.count_events(), "closed": None})

    def close_span(self) -> None:
        number = self.thread.spans.pop()
        self.open_spans.remove(number)
        self.spans[number]["closed"] = self.count_events()

    @contextmanager
    def operator(self, name: str, line: str | None) -> Iterator[None]:
        """A block whose events belong to an operator that this line calls."""
        first = self.count_events()
        try:
            yield
        finally:
            if (after := self.count_events()) > first:
                self.operators.append((first, after, name, line))

    def read(self) -> tuple[list[Event], list[dict], dict[str, int]]:
        """Events, ranges, and what the allocator counted, in bytes."""
        actions = {"alloc": True, "free_completed": False}  # a release counts when it is completed, as in the counts
        trace = [one for one in self.snapshot["device_traces"][self.device.index] if one["action"] in actions]
        events = [Event(actions[one["action"]], one["addr"], one["size"], one["time_us"]) for one in trace]
        for first, after, name, line in self.operators:
            events[first:after] = [event._replace(operator=name, line=line) for event in events[first:after]]
        return events, self.spans, self.counts


def strip_snapshot(snapshot: dict[str, Any]) -> dict[str, Any]:
    """What pytorch.org/memory_viz draws of a snapshot, without folders of this machine: results are published."""
    kept = (
        "action", "addr", "size", "stream", "time_us", "device_free", "pool_id", "segment_pool_id", "version", "device",
        "address", "total_size", "allocated_size", "active_size", "requested_size", "segment_type", "is_expandable",
        "state",
    )  # fmt: skip

    def keep(values: dict[str, Any]) -> dict[str, Any]:
        frames = [dict(one, filename=shorten_path(one["filename"])) for one in values.get("frames", ())]
        blocks = {"blocks": [keep(one) for one in values["blocks"]]} if "blocks" in values else {}
        return {name: values[name] for name in kept if name in values} | {"frames": frames} | blocks

    return {
        "segments": [keep(one) for one in snapshot["segments"]],
        "device_traces": [[keep(one) for one in trace] for trace in snapshot["device_traces"]],
    }


class CpuRecorder:
    """Records what PyTorch's profiler sees of memory."""

    not_seen = (
        "a processor's allocator keeps no reserve and rounds nothing: requested, allocated and reserved are one",
        "what libraries (oneDNN, OpenMP, the C++ runtime) allocate themselves, including workspaces, is not seen",
        "what a thread of Gloo releases counts as live until its memory is used again",
        "there is no snapshot for pytorch.org/memory_viz",
    )
    SPAN, OPERATOR = "range of the program: ", "operator of the program: "  # beginnings of names in the profile

    def __init__(self) -> None:
        self.open_spans: list[_RecordFunctionFast] = []
        self.emitter = Emitter(self.open_span, lambda: self.open_spans.pop().__exit__(None, None, None))
        self.profile = profile(use_kineto=True, profile_memory=True)

    def __enter__(self) -> None:
        self.profile.__enter__()

    def __exit__(self, *error: object) -> None:
        self.profile.__exit__(None, None, None)

    def open_span(self, name: str) -> None:
        self.open_spans.append(_RecordFunctionFast(self.SPAN + name))
        self.open_spans[-1].__enter__()

    def operator(self, name: str, line: str | None) -> AbstractContextManager:
        return _RecordFunctionFast(f"{self.OPERATOR}{name} {line or ''}")

    def read(self) -> tuple[list[Event], list[dict], dict[str, int]]:
        timed, nodes = [], []  # (nanosecond, event, bytes of all live tensors after it); of ranges
        stack = [(node, (None, None)) for node in self.profile.kineto_results.experimental_event_tree()]
        while stack:
            node, operator = stack.pop()
            kind, fields = node.typed
            if kind == _EventType.Allocation and fields.device.type == "cpu":
                size, start = fields.alloc_size, node.start_time_ns  # a release adds a negative size
                event = Event(size > 0, fields.ptr, abs(size), start / 1e3, *operator)
                timed.append((start, event, fields.total_allocated))
            elif node.name.startswith(self.OPERATOR):
                name, _, line = node.name.removeprefix(self.OPERATOR).partition(" ")
                operator = name, line or None
            elif node.name.startswith(self.SPAN):
                nodes.append(node)
            stack += [(child, operator) for child in reversed(node.children)]
        timed.sort(key=lambda one: one[0])
        times, events, totals = map(list, zip(*timed, strict=True))
        # a range of the backward pass may begin in one node of autograd and end in another, so what it contains follows
        # from times, not from the profiler's tree
        nodes.sort(key=attrgetter("start_time_ns"))
        spans, around = [], []
        for number, node in enumerate(nodes):
            while around and nodes[around[-1]].end_time_ns <= node.start_time_ns:
                around.pop()
            opened, closed = (bisect_left(times, time) for time in (node.start_time_ns, node.end_time_ns))
            name, inside = node.name.removeprefix(self.SPAN), around[-1] if around else None
            spans.append({"name": name, "inside": inside, "opened": opened, "closed": closed})
            around.append(number)
        # an earlier profile of this process may have left something in the totals
        before = totals[0] - (events[0].size if events[0].allocates else -events[0].size)
        return events, spans, {"requested_peak_bytes": max(totals) - before}


class Operators(TorchDispatchMode):
    """Opens `context(name, line)` around every ATen operator, also on autograd's threads."""

    def __init__(self, context: Callable[[str, str | None], AbstractContextManager]) -> None:
        super().__init__()
        self.context = context

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise PyTorch imports its compiler, which takes seconds

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        with self.context(operator._schema.name, find_line()):
            return operator(*args, **(kwargs or {}))


def find_line() -> str | None:
    """The line that called the current operator ("cs336_model/model.py:34"): the innermost outside of PyTorch and
    kernel_tables.marks; None on autograd's threads, which run no Python."""
    frame = sys._getframe(1).f_back  # whatever called __torch_dispatch__; None on a thread of autograd
    while frame is not None:
        if path := find_own_path(frame.f_code.co_filename):
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@cache
def find_own_path(file: str) -> str | None:
    """The shortened path of a file; None for PyTorch, kernel_tables.marks, and code without a file."""
    libraries = [f"{Path(package.__file__).parent}/" for package in (torch, marks)]
    return None if file.startswith((*libraries, "<")) else shorten_path(file)


def shorten_path(file: str) -> str:
    """A source file's path inside of the installed packages or of cs336_model; of any other file only its name."""
    parts = PurePath(file).parts
    for folder, skipped in (("site-packages", 1), ("dist-packages", 1), ("cs336_model", 0)):
        if folder in parts:
            return "/".join(parts[len(parts) - 1 - parts[::-1].index(folder) + skipped :])
    return parts[-1] if parts else ""


def list_held(subject: Subject) -> dict[str, list[int]]:
    """By category, the addresses of the storages that the subject holds now."""
    if isinstance(optimizer := subject.optimizer, AdamW):
        moments = [*optimizer.first_moments, *optimizer.second_moments]
    else:
        moments = [value for state in optimizer.state.values() for value in state.values()] if optimizer else []
    tensors = {
        "parameters": subject.parameters,
        "gradients": [parameter.grad for parameter in subject.parameters],
        "optimizer state": moments,
        "data": [subject.inputs, subject.targets, *subject.model.buffers(), *subject.losses],
    }
    return {
        category: [take_local(one).untyped_storage().data_ptr() for one in values if isinstance(one, Tensor)]
        for category, values in tensors.items()
    }


def pack(events: list[Event], spans: list[dict], held: dict[str, list[int]]) -> bytes:
    """The history as a gzipped JSON of columns, in which each allocation has the number of its release, and not its
    address. Releases of what was made before the recording are left out."""
    freed: dict[int, int | None] = {}  # by number of the allocation
    live: dict[int, int] = {}  # numbers of allocations by address
    for number, event in enumerate(events):
        if event.address in live:  # if it allocates, a release was not seen
            freed[live.pop(event.address)] = number
        if event.allocates:
            live[event.address], freed[number] = number, None
    holder = {live[one]: category for category, addresses in held.items() for one in addresses if one in live}
    innermost: list[int | None] = [None] * len(events)
    for number, span in enumerate(spans):  # in the order in which they opened: inner ranges overwrite outer ones
        closed = len(events) if span["closed"] is None else span["closed"]
        innermost[span["opened"] : closed] = [number] * (closed - span["opened"])
    record = {
        "time_us": [round(event.time_us - events[0].time_us, 3) for event in events],
        "allocations": {
            "bytes": [events[number].size for number in freed],
            "made": list(freed),
            "freed": list(freed.values()),
            "range": [innermost[number] for number in freed],
            "operator": [events[number].operator for number in freed],
            "line": [events[number].line for number in freed],
            "held": [holder.get(number) for number in freed],
        },
        "ranges": {name: [span[name] for span in spans] for name in ("name", "inside", "opened", "closed")},
    }
    # without the time: equal records are equal files
    return gzip.compress(json.dumps(record, separators=(",", ":")).encode(), mtime=0)


class Types:
    """Notes the types of numbers that the modules of a model return; make it before the first step."""

    def __init__(self, model: nn.Module) -> None:
        self.seen: dict[str, dict[str, set[str]]] = {}  # types by name, shared by the modules of a list, and kind
        self.modules: dict[str, set[str]] = {}  # full names by that name
        for name, module in model.named_modules():
            note = partial(self.note, "output", name or "(logits)")
            module.register_forward_hook(lambda _, __, output, note=note: note(tree_iter(output)))

    def note(self, kind: str, name: str, values: Iterable[Any]) -> None:
        shared = ".".join("*" if part.isdigit() else part for part in name.split("."))
        self.modules.setdefault(shared, set()).add(name)
        types = self.seen.setdefault(shared, {}).setdefault(kind, set())
        types |= {str(value.dtype).removeprefix("torch.") for value in values if isinstance(value, Tensor)}

    def list_rows(self, subject: Subject) -> list[dict[str, str | int]]:
        """A row per module, those of a list together ("blocks.*.norm"): how many they are, and the types of parameters,
        output and gradients. `(logits)` and `(loss)` have an output alone."""
        for name, module in subject.model.named_modules():
            if parameters := list(module.parameters(recurse=False)):
                self.note("parameters", name or "(model)", parameters)
                self.note("gradients", name or "(model)", [parameter.grad for parameter in parameters])
        if subject.losses:
            self.note("output", "(loss)", subject.losses[:1])
        return [
            {"module": name, "modules": len(self.modules[name])}
            | {kind: ", ".join(sorted(seen.get(kind, ()))) for kind in ("parameters", "output", "gradients")}
            for name, seen in self.seen.items()
        ]
