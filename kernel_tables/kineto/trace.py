"""The events of a trace that PyTorch's profiler wrote as JSON, in columns; times are integer nanoseconds.

Categories changed over the years: 2021 has `Kernel`, `Runtime` and `Operator` for `kernel`, `cuda_runtime` and
`cpu_op`. ROCm writes the calls of HIP into `cuda_runtime`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from kernel_tables.kineto.events import (
    NO_ARGS,
    CollectiveArgs,
    Event,
    collective_args,
    has_fractions,
    integers,
    nanoseconds,
    written,
)
from kernel_tables.kineto.json_stream import EventStream, InvalidJson, NotATrace

KERNEL, COPY, FILL, CALL, OPERATOR, ANNOTATION, FUNCTION, ARROW = (
    "kernel", "copy", "fill", "call", "operator", "annotation", "function", "arrow",
)  # fmt: skip
CATEGORIES = {
    "kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": COPY, "Memcpy": COPY, "gpu_memset": FILL, "Memset": FILL,
    "cuda_runtime": CALL, "cuda_driver": CALL, "Runtime": CALL, "hip_runtime": CALL, "xpu_runtime": CALL,
    "xpu_driver": CALL, "privateuse1_runtime": CALL, "privateuse1_driver": CALL, "mtia_runtime": CALL,
    "cpu_op": OPERATOR, "Operator": OPERATOR, "user_annotation": ANNOTATION, "python_function": FUNCTION,
}  # fmt: skip
ARROWS = ("fwdbwd", "forward_backward")  # from operators to the nodes that differentiate them
ON_DEVICE = (KERNEL, COPY, FILL)
MODULE, BACKWARD_CALL = "nn.Module: ", "torch/autograd/__init__.py("
NONE = -1
LONGEST_NS = 1 << 61  # 73 years; four of these fit in 64 bits
SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
BITS = 24

Columns = dict[str, np.ndarray]
ColumnOf = Callable[["TorchTrace", Sequence[Event], Sequence[Any]], np.ndarray]  # of events and their args


class Numbers:
    """A number for each distinct value, in order of first appearance."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, value: Any) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def numbers(self, values: Sequence[Any]) -> np.ndarray:
        for value in dict.fromkeys(values):
            self.number(value)
        return np.array(list(map(self._numbers.__getitem__, values)), np.int64)

    @property
    def values(self) -> list[Any]:
        return list(self._numbers)


class Threads:
    """Global ids of threads, as nsys packs them. A process or thread whose id does not fit gets an unused number."""

    def __init__(self) -> None:
        self._ids: dict[tuple, int] = {}
        self._processes, self._threads = Numbers(), Numbers()

    def ids(self, events: Sequence[Event]) -> np.ndarray:
        keys = [(event.pid, event.tid) for event in events]
        try:
            distinct = set(keys)
        except TypeError:  # ids that are lists or objects
            keys = [tuple(value if isinstance(value, int | str) else str(value) for value in key) for key in keys]
            distinct = set(keys)
        for process, thread in distinct - self._ids.keys():
            numbers = self._number(self._processes, process), self._number(self._threads, thread)
            self._ids[process, thread] = global_thread(*numbers)
        return np.array(list(map(self._ids.__getitem__, keys)), np.int64)

    @staticmethod
    def _number(numbers: Numbers, name: Any) -> int:
        if isinstance(name, int) and 0 <= name < (1 << BITS) - (1 << 16):
            return name
        return (1 << BITS) - 1 - numbers.number(str(name))


class TorchTrace:
    """The columns by kind of event: start, end (nanoseconds from the first event), name (a number of `names`), and
    those of _COLUMNS. `facts` are the other keys of the JSON."""

    def __init__(self, path: Path, *, up_to_damage: bool = False) -> None:
        """With `up_to_damage`, invalid JSON is read as far as it is valid, and `damage` says where it is invalid."""
        self.names, self.shapes, self.threads = Numbers(), Numbers(), Threads()
        self.collectives: list[CollectiveArgs] = []
        self.counts: Counter[str | None] = Counter()
        self.damage: str | None = None
        self.whole_microseconds = True
        self._blocks: dict[str, list[Columns]] = {kind: [] for kind in _COLUMNS}
        stream = EventStream(path)
        try:
            for events in stream:
                self._use(events)
        except InvalidJson as error:
            if not up_to_damage:
                raise
            self.damage = str(error)
        self.facts = stream.facts
        self.columns = {kind: _joined(kind, blocks) for kind, blocks in self._blocks.items()}
        self._blocks.clear()
        self.first_ns = min((int(c["start"].min()) for c in self.columns.values() if len(c["start"])), default=0)
        for columns in self.columns.values():
            columns["start"] -= self.first_ns
            columns["end"] -= self.first_ns

    def __getitem__(self, kind: str) -> Columns:
        return self.columns[kind]

    def count(self, *kinds: str) -> int:
        """The number of events of these kinds."""
        return sum(len(self.columns[kind]["start"]) for kind in kinds)

    def names_of(self, kind: str) -> list[str]:
        """The name of each event of a kind."""
        names = self.names.values
        return [names[number] for number in self.columns[kind]["name"].tolist()]

    @property
    def last_ns(self) -> int:
        return max((int(c["end"].max()) for c in self.columns.values() if len(c["end"])), default=0)

    @property
    def began_utc_ns(self) -> int | None:
        """The time of the first event in nanoseconds since 1970; None if the trace does not contain it."""
        base_ns = self.facts.get("baseTimeNanoseconds")
        return base_ns + self.first_ns if isinstance(base_ns, int) and abs(base_ns) < LONGEST_NS else None

    def _use(self, events: list[Event]) -> None:
        by_kind: dict[str, list[Event]] = {kind: [] for kind in _COLUMNS}
        lasting = {category: by_kind[kind].append for category, kind in CATEGORIES.items()}
        arrows = dict.fromkeys(ARROWS, by_kind[ARROW].append)
        by_phase = {"X": lasting, "s": arrows, "f": arrows}
        for event in events:
            if keep := by_phase.get(event.ph, {}).get(event.cat):
                keep(event)
        self.counts.update([event.cat for event in events])
        by_kind[FUNCTION] = [event for event in by_kind[FUNCTION] if _is_kept(event.name or "")]
        for kind, kind_events in by_kind.items():
            if kind_events:
                try:
                    self._blocks[kind].append(self._columns(kind, kind_events))
                except ValueError as error:
                    raise NotATrace(f"no trace of PyTorch's profiler: {error}") from error

    def _columns(self, kind: str, events: list[Event]) -> Columns:
        started = written([event.ts for event in events])
        lasted = b"0 " * len(events) if kind == ARROW else written([event.dur for event in events])
        if self.whole_microseconds and kind in ON_DEVICE:
            self.whole_microseconds = not has_fractions(lasted)
        start_ns, duration_ns = nanoseconds(started), nanoseconds(lasted)
        if np.abs(start_ns).max() > LONGEST_NS or np.abs(duration_ns).max() > LONGEST_NS:
            raise ValueError("a time or duration is longer than 73 years")
        columns = {"start": start_ns, "end": start_ns + duration_ns}
        if kind in (ANNOTATION, FUNCTION):  # Kineto writes a negative duration if it did not see the end
            columns["end"] = np.maximum(start_ns, columns["end"])
        columns["name"] = self.names.numbers([event.name or "" for event in events])
        args = [event.args or NO_ARGS for event in events]
        for name, column_of in _COLUMNS[kind].items():
            columns[name] = column_of(self, events, args)
        if kind == KERNEL:
            self.collectives += collective_args(events)
            columns |= _sizes(args)
        return columns


def _is_kept(function: str) -> bool:
    return function.startswith(MODULE) or (BACKWARD_CALL in function and function.endswith("): backward"))


def _joined(kind: str, blocks: list[Columns]) -> Columns:
    if blocks:
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    sizes = SIZES if kind == KERNEL else ()
    return {name: np.empty(0, np.int64) for name in ("start", "end", "name", *_COLUMNS[kind], *sizes)}


def global_thread(process: int, thread: int) -> int:
    """globalTid as nsys packs it: thread in bits 0-23, process in bits 24-47; with thread 0 it is the globalPid."""
    return (process << BITS) | (thread & (1 << BITS) - 1)


def _argument(name: str, otherwise: int = NONE) -> ColumnOf:
    value = attrgetter(name)
    return lambda trace, events, args: integers(list(map(value, args)), otherwise)


def _argument_or_field(name: str, field: str) -> ColumnOf:
    """An argument, or if it is missing, a field of the event with the same meaning."""
    of_args, of_event = attrgetter(name), attrgetter(field)

    def column(_: TorchTrace, events: Sequence[Event], args: Sequence[Any]) -> np.ndarray:
        values = list(map(of_args, args))
        if None in values:
            pairs = zip(values, map(of_event, events), strict=True)
            values = [of_event if value is None else value for value, of_event in pairs]
        return np.maximum(integers(values, 0), 0)

    return column


def _correlation(_: TorchTrace, __: Sequence[Event], args: Sequence[Any]) -> np.ndarray:
    numbers = [of_event.correlation for of_event in args]
    if None in numbers:
        known = [(of_event.correlation, of_event.external_id, of_event.old_external_id) for of_event in args]
        numbers = [next((number for number in ids if number is not None), None) for ids in known]
    return integers(numbers, NONE)


def _sizes(args: Sequence[Any]) -> Columns:
    """The columns of SIZES; NONE for a size that is not three numbers."""
    columns = []
    for name in ("grid", "block"):
        values = list(map(attrgetter(name), args))
        try:
            table = np.array(values, np.int64).reshape(len(values), 3)
        except (TypeError, ValueError, OverflowError):
            known = [size if isinstance(size, list) and len(size) == 3 else (NONE,) * 3 for size in values]
            table = integers([number for size in known for number in size], NONE).reshape(-1, 3)
        columns += list(table.T)
    return dict(zip(SIZES, columns, strict=True))


_THREAD = {"thread": lambda trace, events, _: trace.threads.ids(events)}
_OPERATION = {
    "device": _argument_or_field("device", "pid"),
    "stream": _argument_or_field("stream", "tid"),
    "context": _argument("context", 0),
    "correlation": _correlation,
}
_MEMORY = _OPERATION | {"bytes": _argument("bytes")}
_ORDER = {"order": _argument("external_id", 0)}  # the order of events with equal times
_OF_OPERATORS = {
    "sequence": _argument("sequence"),
    "forward_thread": _argument("forward_thread", 0),
    "shapes": lambda trace, _, args: trace.shapes.numbers([bytes(of_event.shapes) for of_event in args]),
}
_COLUMNS = {
    KERNEL: _OPERATION | {"registers": _argument("registers")},
    COPY: _MEMORY,
    FILL: _MEMORY,
    CALL: _THREAD | {"correlation": _correlation},
    OPERATOR: _THREAD | _ORDER | _OF_OPERATORS,
    ANNOTATION: _THREAD | _ORDER,
    FUNCTION: _THREAD,
    ARROW: _THREAD
    | {
        "id": lambda _, events, __: integers([event.id for event in events], NONE),
        "is_begin": lambda _, events, __: np.array([event.ph == "s" for event in events], np.int64),
    },
}
