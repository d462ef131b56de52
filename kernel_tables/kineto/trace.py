"""The events of a JSON trace of PyTorch's profiler, in columns; times are integer nanoseconds.

Categories changed over the years: 2021 has `Kernel`, `Runtime` and `Operator` for `kernel`, `cuda_runtime` and
`cpu_op`. ROCm writes the calls of HIP into `cuda_runtime`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from kernel_tables.global_ids import NUMBER_MASK, global_thread
from kernel_tables.kineto.events import (
    NO_ARGS,
    CollectiveArgs,
    Event,
    collective_args,
    has_fractions,
    integers,
    joined_times,
    nanoseconds,
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
# Arrows from operators to the nodes that differentiate them.
ARROW_CATEGORIES = {"fwdbwd": ARROW, "forward_backward": ARROW}
# By the phase of an event: X has a duration, s is the start of an arrow, f its end.
KINDS_BY_PHASE = {"X": CATEGORIES, "s": ARROW_CATEGORIES, "f": ARROW_CATEGORIES}
DEVICE_KINDS = (KERNEL, COPY, FILL)
MODULE, AUTOGRAD_FILE = "nn.Module: ", "torch/autograd/__init__.py("  # in names of functions
NONE = -1  # a missing number
MAX_TIME_NS = 1 << 61  # 73 years; the sum of three fits in 64 bits
MIN_SUBSTITUTE = NUMBER_MASK - 0xFFFF  # numbers of threads and processes from here on are substitutes (see Threads)
SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")

Columns = dict[str, np.ndarray]
ColumnMaker = Callable[["TorchTrace", Sequence[Event], Sequence[Any]], np.ndarray]  # of events and their args


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
    """Global ids of threads. If what an event gives for its process or thread does not fit into a global id, or is no
    number, a number from MIN_SUBSTITUTE on replaces it, the highest first."""

    def __init__(self) -> None:
        self._ids: dict[tuple, int] = {}
        self._replaced_processes, self._replaced_threads = Numbers(), Numbers()

    def ids(self, events: Sequence[Event]) -> np.ndarray:
        keys = [(event.pid, event.tid) for event in events]
        try:
            distinct = set(keys)
        except TypeError:  # ids that are lists or objects
            keys = [tuple(value if isinstance(value, int | str) else str(value) for value in key) for key in keys]
            distinct = set(keys)
        for process, thread in distinct - self._ids.keys():
            process_number = self._number(self._replaced_processes, process)
            thread_number = self._number(self._replaced_threads, thread)
            self._ids[process, thread] = global_thread(process_number, thread_number)
        return np.array(list(map(self._ids.__getitem__, keys)), np.int64)

    @staticmethod
    def _number(replaced: Numbers, number: Any) -> int:
        if isinstance(number, int) and 0 <= number < MIN_SUBSTITUTE:
            return number
        return NUMBER_MASK - replaced.number(str(number))


class TorchTrace:
    """The events of each kind in columns: start, end (nanoseconds from the first event), name (a number of `names`),
    the columns in _COLUMNS, and for kernels those in SIZES.

    `facts` is the rest of the JSON; `counts` the number of events by category; `collectives` what PyTorch requested of
    NCCL's kernels; `whole_microseconds`: no duration on a device has a fraction of a microsecond.
    """

    def __init__(self, path: Path, *, up_to_damage: bool = False) -> None:
        """Reads the trace. Invalid JSON raises InvalidJson; with `up_to_damage`, it is read up to where it is invalid,
        and `damage` says where that is. NotATrace if the file is no trace."""
        self.names, self.shapes, self.threads = Numbers(), Numbers(), Threads()
        self.collectives: list[CollectiveArgs] = []
        self.counts: Counter[str | None] = Counter()
        self.damage: str | None = None
        self.whole_microseconds = True
        self._blocks: dict[str, list[Columns]] = {kind: [] for kind in _COLUMNS}
        stream = EventStream(path)
        try:
            for events in stream:
                self._add(events)
        except InvalidJson as error:
            if not up_to_damage:
                raise
            self.damage = str(error)
        self.facts = stream.facts
        self.columns = {kind: _concatenated(kind, blocks) for kind, blocks in self._blocks.items()}
        self._blocks.clear()
        starts_ns = [columns["start"] for columns in self.columns.values() if len(columns["start"])]
        self.first_ns = min((int(start_ns.min()) for start_ns in starts_ns), default=0)
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
        ends_ns = [columns["end"] for columns in self.columns.values() if len(columns["end"])]
        return max((int(end_ns.max()) for end_ns in ends_ns), default=0)

    @property
    def began_utc_ns(self) -> int | None:
        """The time of the first event in nanoseconds since 1970; None if the trace has no valid base time."""
        base_ns = self.facts.get("baseTimeNanoseconds")
        return base_ns + self.first_ns if isinstance(base_ns, int) and abs(base_ns) < MAX_TIME_NS else None

    def _add(self, events: list[Event]) -> None:
        by_kind: dict[str, list[Event]] = {kind: [] for kind in _COLUMNS}
        for event in events:
            if kind := KINDS_BY_PHASE.get(event.ph, {}).get(event.cat):
                by_kind[kind].append(event)
        self.counts.update([event.cat for event in events])
        by_kind[FUNCTION] = [event for event in by_kind[FUNCTION] if _is_module_or_backward(event.name or "")]
        for kind, kind_events in by_kind.items():
            if kind_events:
                try:
                    self._blocks[kind].append(self._columns(kind, kind_events))
                except ValueError as error:
                    raise NotATrace(f"no trace of PyTorch's profiler: {error}") from error

    def _columns(self, kind: str, events: list[Event]) -> Columns:
        has_durations = kind != ARROW  # an end of an arrow is one moment
        durations = joined_times([event.dur for event in events]) if has_durations else b"0 " * len(events)
        if self.whole_microseconds and kind in DEVICE_KINDS:
            self.whole_microseconds = not has_fractions(durations)
        start_ns, duration_ns = nanoseconds(joined_times([event.ts for event in events])), nanoseconds(durations)
        if np.abs(start_ns).max() > MAX_TIME_NS or np.abs(duration_ns).max() > MAX_TIME_NS:
            raise ValueError("a time or duration is longer than 73 years")
        columns = {"start": start_ns, "end": start_ns + duration_ns}
        if kind in (ANNOTATION, FUNCTION):  # Kineto writes a negative duration if it did not see the end
            columns["end"] = np.maximum(start_ns, columns["end"])
        columns["name"] = self.names.numbers([event.name or "" for event in events])
        args = [event.args or NO_ARGS for event in events]
        for name, make_column in _COLUMNS[kind].items():
            columns[name] = make_column(self, events, args)
        if kind == KERNEL:
            self.collectives += collective_args(events)
            columns |= _size_columns(args)
        return columns


def _is_module_or_backward(function: str) -> bool:
    return function.startswith(MODULE) or (AUTOGRAD_FILE in function and function.endswith("): backward"))


def _concatenated(kind: str, blocks: list[Columns]) -> Columns:
    if blocks:
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}
    sizes = SIZES if kind == KERNEL else ()
    return {name: np.empty(0, np.int64) for name in ("start", "end", "name", *_COLUMNS[kind], *sizes)}


def _arg_column(name: str, default: int = NONE) -> ColumnMaker:
    return lambda _trace, _events, args: integers([getattr(event_args, name) for event_args in args], default)


def _arg_or_field_column(name: str, field: str) -> ColumnMaker:
    """The column of one of the args, at least 0. If an event lacks it, its `field` counts, which means the same: of
    activities, the pid is the device and the tid the stream."""

    def column(_trace: TorchTrace, events: Sequence[Event], args: Sequence[Any]) -> np.ndarray:
        values = [getattr(event_args, name) for event_args in args]
        if None in values:
            fields = [getattr(event, field) for event in events]
            values = [substitute if value is None else value for value, substitute in zip(values, fields, strict=True)]
        return np.maximum(integers(values, 0), 0)

    return column


def _correlation(_trace: TorchTrace, _events: Sequence[Event], args: Sequence[Any]) -> np.ndarray:
    """The correlation ids; some older traces write them under the key of the external id."""
    values = [event_args.correlation for event_args in args]
    for older_name in ("external_id", "old_external_id"):
        if None in values:
            pairs = zip(values, args, strict=True)
            values = [getattr(event_args, older_name) if value is None else value for value, event_args in pairs]
    return integers(values, NONE)


def _size_columns(args: Sequence[Any]) -> Columns:
    """The columns of SIZES. A size that is not a list of three is NONE in all of its three columns; what is no integer
    is NONE in its own."""
    columns: list[np.ndarray] = []
    for name in ("grid", "block"):
        sizes = [getattr(event_args, name) for event_args in args]
        triples = [size if isinstance(size, list) and len(size) == 3 else (NONE,) * 3 for size in sizes]
        columns.extend(integers(list(chain.from_iterable(triples)), NONE).reshape(-1, 3).T)
    return dict(zip(SIZES, columns, strict=True))


_THREAD_COLUMN = {"thread": lambda trace, events, _args: trace.threads.ids(events)}
_DEVICE_COLUMNS = {
    "device": _arg_or_field_column("device", "pid"),
    "stream": _arg_or_field_column("stream", "tid"),
    "context": _arg_column("context", 0),
    "correlation": _correlation,
}
_MEMORY_COLUMNS = _DEVICE_COLUMNS | {"bytes": _arg_column("bytes")}
_ORDER_COLUMN = {"order": _arg_column("external_id", 0)}  # of events with equal times, the outer one has the lower
_OPERATOR_COLUMNS = {
    "sequence": _arg_column("sequence"),
    "forward_thread": _arg_column("forward_thread", 0),
    "shapes": lambda trace, _events, args: trace.shapes.numbers([bytes(event_args.shapes) for event_args in args]),
}
_COLUMNS = {
    KERNEL: _DEVICE_COLUMNS | {"registers": _arg_column("registers")},
    COPY: _MEMORY_COLUMNS,
    FILL: _MEMORY_COLUMNS,
    CALL: _THREAD_COLUMN | {"correlation": _correlation},
    OPERATOR: _THREAD_COLUMN | _ORDER_COLUMN | _OPERATOR_COLUMNS,
    ANNOTATION: _THREAD_COLUMN | _ORDER_COLUMN,
    FUNCTION: _THREAD_COLUMN,
    ARROW: _THREAD_COLUMN
    | {
        "id": lambda _trace, events, _args: integers([event.id for event in events], NONE),
        "is_begin": lambda _trace, events, _args: np.array([event.ph == "s" for event in events], np.int64),
    },
}
