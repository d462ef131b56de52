"""Reading a trace of torch.profiler (Kineto's JSON, gzipped or not) into the same columns as an export of nsys.

Times become integer nanoseconds from the first event. In a trace without a GPU, operators of PyTorch on the processor
are the activities.
"""

import hashlib
import re
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from kernel_tables import modules
from kernel_tables.capture import (
    NONE,
    THREAD_BITS,
    UNNAMED,
    Activities,
    Calls,
    Capture,
    Nodes,
    Ranges,
    Source,
    operation_named,
    process_of,
    range_name,
)  # fmt: skip
from kernel_tables.errors import DAMAGE_KEY, NOTES_KEY, RANK_KEY, RANKS_KEY, RESOLUTION_KEY, TraceError, impossible
from kernel_tables.events import ADVICE, GZIP, Args, Event, EventFile

HOST_KINDS = ("annotation", "function", "operator")  # of events that may have no end
KERNEL, COPY, FILL = range(3)  # in the order of capture.KINDS
KINDS = {  # by category; they changed over the years, and ROCm writes calls of HIP into cuda_runtime
    "kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": COPY, "Memcpy": COPY, "gpu_memset": FILL, "Memset": FILL,
    "cuda_runtime": "call", "cuda_driver": "call", "Runtime": "call", "hip_runtime": "call", "xpu_runtime": "call",
    "xpu_driver": "call", "privateuse1_runtime": "call", "privateuse1_driver": "call", "mtia_runtime": "call",
    "cpu_op": "operator", "Operator": "operator", "user_annotation": "annotation", "python_function": "function",
    "overhead": "overhead", "fwdbwd": "arrow", "forward_backward": "arrow",
}  # fmt: skip


def is_json(begin: bytes, path: Path) -> bool:
    """Whether a file, gzipped or not, with these first bytes begins like JSON, or is named so."""
    if begin.startswith(GZIP):
        try:
            begin = zlib.decompressobj(31).decompress(begin, 4096)
        except zlib.error:
            begin = b""
    return begin.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")) or ".json" in path.suffixes[-2:]


def read(path: Path, *, up_to_damage: bool = False) -> Capture:
    """The capture in a trace; with `up_to_damage`, what comes before the place where its JSON is invalid.

    Raises TraceError if the file is no trace or without activities, ImpossibleCapture if its JSON is invalid.
    """
    events = Events(path, up_to_damage=up_to_damage)
    if not len(events[KERNEL]["start"]):
        launches = sum("Launch" in name for name in events.named("call"))
        if launches:
            raise TraceError(
                f"{path}: a trace without kernels, though with {launches:,} calls that launch them: the profiler saw"
                " nothing of the GPU; record with ProfilerActivity.CUDA, without another profiler around the program"
            )
        if not len(events["operator"]["start"]):
            counts = Counter(event.cat for some in EventFile(path) for event in some).most_common(4)
            found = ", ".join(f"{count:,} {category or 'without a category'}" for category, count in counts)
            raise TraceError(
                f"{path}: a trace without kernels and operators (events by category: {found or 'none'}); {ADVICE}"
            )
    on_gpu = bool(len(events[KERNEL]["start"]))
    return events.capture(on_gpu, modules.derived_ranges(events, on_gpu=on_gpu), with_notes=True)


def read_recorded(path: Path, torch_version: str, on_gpu: bool | None = None) -> Capture:
    """The capture in a trace that this project's recorder had PyTorch write: the ranges are annotations alone.

    `on_gpu`: whether the program used a GPU, by default whether the trace has calls or activities of one. Raises
    TraceError without activities.
    """
    events = Events(path)
    counts = {kind: len(columns["start"]) for kind, columns in events.columns.items() if kind != "overhead"}
    if not any(counts.values()):
        raise TraceError("nothing of PyTorch ran in the window; take a later or longer one")
    on_gpu = counts[KERNEL] + counts["call"] > 0 if on_gpu is None else on_gpu
    capture = events.capture(on_gpu, modules.recorded_ranges(events, on_gpu=on_gpu), torch_version=torch_version)
    if not len(capture.activities):
        raise TraceError(
            f"the profiler recorded {sum(counts.values())} events and no {'kernel' if on_gpu else 'ATen operator'}: on"
            " a GPU, CUPTI may be refused to this user or taken by another profiler (nsys around this program?)"
        )
    return capture


def export_capture(profiler: Any, path: Path, on_gpu: bool, torch_version: str) -> None:
    """Writes the window that a finished torch.profiler.profile recorded, as SQLite, completely or not at all. Raises
    TraceError without activities."""
    from kernel_tables.publish import write_capture

    with tempfile.TemporaryDirectory(prefix="kineto-") as folder:
        trace_path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace_path))
        write_capture(read_recorded(trace_path, torch_version, on_gpu), path)


class Numbers(dict):
    """A number for each key, in the order of their first use."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number

    def of(self, keys: list) -> np.ndarray:
        """The number of each key."""
        return np.fromiter(map(self.__getitem__, keys), np.int64, len(keys))


class Events(Source):
    """The events of each kind in columns: start, end (ns from the first event), name (a number of `texts`), thread, ...

    Activities of the GPU are of the kind KERNEL, with their `kind`. Raises ImpossibleCapture for invalid JSON.
    """

    def __init__(self, path: Path, *, up_to_damage: bool = False):
        self.path, self.unclosed, self.whole_microseconds = path, 0, True
        self.names, self.shapes, self.size_texts, self.copy_words = Numbers(), Numbers(), Numbers(), Numbers()
        self.collectives: list[Args] = []
        self._no_args = Args()
        self._substitutes = Numbers()
        file = EventFile(path)
        self.columns = self._read(file)
        if file.facts.get("writtenBy"):
            raise TraceError(f"{path}: a timeline written by `kernel-tables trace`, not a capture; {ADVICE}")
        if file.damage and not up_to_damage:
            raise file.invalid(file.damage)
        self.damage, self.repairs, self.facts = file.damage, file.repairs, file.facts
        self._count_from_first()
        self.texts = list(self.names)

    def __getitem__(self, kind: Any) -> dict[str, np.ndarray]:
        return self.columns[kind]

    def named(self, kind: Any) -> list[str]:
        """The name of each event of a kind."""
        return [self.texts[number] for number in self[kind]["name"].tolist()]

    def rows_named(self, kind: Any, *words: str) -> np.ndarray:
        """The rows of the events of a kind whose names contain one of the words."""
        numbers = [number for number, text in enumerate(self.texts) if any(word in text for word in words)]
        return np.flatnonzero(np.isin(self[kind]["name"], numbers))

    def _read(self, file: EventFile) -> dict[Any, dict[str, np.ndarray]]:
        """The columns by kind."""
        blocks: dict[Any, list[dict]] = {kind: [self._columns(kind, [])] for kind in dict.fromkeys(KINDS.values())}
        for events in file:
            by_kind: dict[Any, list[Event]] = {kind: [] for kind in blocks}
            append = {category: by_kind[kind].append for category, kind in KINDS.items()}.get
            for event in events:
                if add := append(event.cat):
                    add(event)
            by_kind["function"] = [event for event in by_kind["function"] if modules.is_wanted(event.name or "")]
            for kind, of_kind in by_kind.items():
                phases = ("s", "f") if kind == "arrow" else ("X",)
                if of_kind := [event for event in of_kind if event.ph in phases]:
                    blocks[kind].append(self._columns(kind, of_kind))
        blocks[KERNEL] += [*blocks.pop(COPY), *blocks.pop(FILL)]
        return {
            kind: {name: np.concatenate([block[name] for block in parts]) for name in parts[0]}
            for kind, parts in blocks.items()
        }

    def _count_from_first(self) -> None:
        """Makes times count from the first event, and lets events without an end last to the end of the trace."""
        timed = [columns for kind, columns in self.columns.items() if len(columns["start"]) and kind != "overhead"]
        self.first_ns = min((int(columns["start"].min()) for columns in timed), default=0)
        for columns in self.columns.values():
            columns["start"] -= self.first_ns
            columns["end"] -= self.first_ns
        last = max((int(columns["end"].max()) for columns in timed), default=0)
        for kind in HOST_KINDS:
            is_open = self[kind]["is_open"]
            self[kind]["end"][is_open] = last
            self.unclosed += int(is_open.sum()) if kind == "annotation" else 0

    # Columns of a block

    def _columns(self, kind: Any, events: list[Event]) -> dict[str, np.ndarray]:
        """The columns of the events of one kind."""
        start = self._starts([event.ts for event in events])
        columns = {"start": start, "end": start, "name": self.names.of([event.name or "" for event in events])}
        args = [event.args or self._no_args for event in events]
        if kind not in (KERNEL, COPY, FILL):
            columns["thread"] = self._threads(events)
        if kind == "arrow":
            columns["id"] = _integers([event.id for event in events])
            return columns | {"is_begin": np.array([event.ph == "s" for event in events], bool)}
        lengths = self._lengths([event.dur for event in events], may_miss=kind in HOST_KINDS)
        if kind in HOST_KINDS:  # Kineto writes a negative duration if it did not see the end
            columns |= {"is_open": lengths < 0, "order": np.maximum(_integers([one.external for one in args]), 0)}
            lengths = np.maximum(lengths, 0)
        columns["end"] = start + lengths
        if kind in (KERNEL, COPY, FILL, "call"):
            columns |= self._correlations(args)
        if kind in (KERNEL, COPY, FILL):
            self.whole_microseconds = self.whole_microseconds and not (lengths % 1000).any()
            columns |= self._device_columns(kind, events, args)
        if kind == "operator":
            columns["sequence"] = _integers([one.sequence for one in args])
            columns["forward_thread"] = np.maximum(_integers([one.forward_thread for one in args]), 0)
            columns["shapes"] = self.shapes.of(_texts([one.shapes for one in args]))
        return columns

    @staticmethod
    def _correlations(args: list[Args]) -> dict[str, np.ndarray]:
        """The correlation ids, under whose other name, that of external ids, older traces write them; and if one is
        missing or 0, the external ids, else NONE."""
        correlation = _integers([one.correlation for one in args])
        external = np.full(len(args), NONE)
        if (correlation <= 0).any():
            external, old = (_integers([getattr(one, key) for one in args]) for key in ("external", "external_old"))
            external = np.where(external == NONE, old, external)
        return {"correlation": np.where(correlation == NONE, external, correlation), "external": external}

    def _device_columns(self, kind: int, events: list[Event], args: list[Args]) -> dict[str, np.ndarray]:
        device, stream = _integers([one.device for one in args]), _integers([one.stream for one in args])
        if (device == NONE).any() or (stream == NONE).any():  # what the process and thread of an activity mean, too
            device = np.where(device == NONE, _integers([event.pid for event in events]), device)
            stream = np.where(stream == NONE, _integers([event.tid for event in events]), stream)
        missing = np.full(len(events), NONE)
        columns = {
            "kind": np.full(len(events), kind, np.int8),
            "stream": np.clip(device, 0, 1 << 30) << 32 | np.maximum(stream, 0) & 0xFFFFFFFF,
            "node": _integers([one.node for one in args]),
            "grid": missing, "block": missing, "bytes": missing, "copy": missing,
        }  # fmt: skip
        if kind == KERNEL:
            columns["grid"] = self.size_texts.of(_texts([one.grid for one in args]))
            columns["block"] = self.size_texts.of(_texts([one.block for one in args]))
            for one in args:
                if one.collective is not None:
                    one.grid = one.block = None  # which would keep the block of the file in memory
                    self.collectives.append(one)
        else:
            columns["bytes"] = _integers([one.bytes for one in args])
        if kind == COPY:
            copies = [(one.copy_kind, one.source, one.target) for one in args]
            names = [event.name or "" for event in events]
            columns["copy"] = self.copy_words.of(
                [(name, *map(str, kinds)) for name, kinds in zip(names, copies, strict=True)]
            )
        return columns

    def _starts(self, texts: list[msgspec.Raw]) -> np.ndarray:
        """Nanoseconds from texts in microseconds."""
        joined = b" ".join(texts).replace(b'"', b"") + b" "
        chars, times = np.frombuffer(joined, np.uint8), np.empty(0, np.int64)
        ends, points = np.flatnonzero(chars == ord(" ")), np.flatnonzero(chars == ord("."))
        if not joined.translate(None, b"0123456789. "):
            if len(points) == len(texts) and (ends - points == 4).all():  # three decimals
                times = np.fromstring(joined.replace(b".", b""), np.int64, sep=" ")
            elif not len(points):
                times = np.fromstring(joined, np.int64, sep=" ")
                times = times * 1000 if times.max(initial=0) < 1 << 51 else times[:0]
        if len(times) != len(texts):
            times = [self._time(bytes(text).decode(errors="replace").strip('"')) for text in texts]
        return self._checked(times)

    def _lengths(self, values: list, may_miss: bool) -> np.ndarray:
        """Nanoseconds from durations in microseconds, -1 for those that may miss and do."""
        lengths = np.array(values)
        if lengths.dtype == np.float64:
            return self._checked(np.rint(lengths * 1000))
        return self._checked([NONE if one is None and may_miss else self._time(str(one or "")) for one in values])

    def _time(self, text: str) -> int:
        whole, _, decimals = text.partition(".")
        if len(decimals) <= 3 and whole.isdecimal() and len(whole) < 16:
            return int(whole + decimals.ljust(3, "0"))
        try:
            time = Decimal(text[:40]).scaleb(3)
            if abs(time) < 1 << 61:
                return round(time)
        except ArithmeticError:  # no number
            pass
        reason = f"{text[:40]!r} is not a time that a clock shows" if text else "an event has no time or no duration"
        raise TraceError(f"{self.path}: no trace of PyTorch's profiler: {reason}; {ADVICE}")

    def _checked(self, times: Any) -> np.ndarray:
        """The times as integers. TraceError if one is longer than 73 years."""
        if not isinstance(times, list) and np.abs(times).max(initial=0) >= 1 << 61:
            raise TraceError(f"{self.path}: no trace of PyTorch's profiler: a time is longer than 73 years; {ADVICE}")
        return np.array(times, np.int64)

    def _threads(self, events: list[Event]) -> np.ndarray:
        """The global ids of threads; for what is no small number stands one from the highest down."""

        def small(values: list) -> np.ndarray:
            numbers = _integers(values, self._substitute)
            for number in np.unique(numbers[(numbers < 0) | (numbers > THREAD_BITS)]).tolist():
                numbers[numbers == number] = self._substitute(number)
            return numbers

        return small([event.pid for event in events]) << 24 | small([event.tid for event in events])

    def _substitute(self, value: Any) -> int:
        return THREAD_BITS - self._substitutes[str(value)]

    # The capture

    def capture(
        self, on_gpu: bool, ranges: list[modules.Range], torch_version: str = "unknown", with_notes: bool = False
    ) -> Capture:
        """The capture with these ranges."""
        activities, calls = self._device_work() if on_gpu else self._operator_work()
        texts = {text: range_name(text) or UNNAMED for text in dict.fromkeys(one.name for one in ranges)}
        names = Numbers()
        name = names.of([texts[one.name] for one in ranges])
        start, end, thread = (np.array([one[place] for one in ranges], np.int64) for place in range(3))
        domain, pushed = np.zeros(len(name), np.int64), np.ones(len(name), bool)
        columns = Ranges.in_order(start, end, thread, name, list(names), domain, pushed, {}, self.unclosed)
        nodes = self._graph_nodes(activities)
        facts = {"EXPORT_PRODUCT_NAME": "PyTorch profiler (Kineto)", "EXPORT_PRODUCT_VERSION": torch_version}
        facts["CAPTURE_BACKEND"] = "torch"
        if with_notes:
            facts |= self._own_facts() | {NOTES_KEY: "\n".join(self._notes(activities, on_gpu))}
        overhead = self["overhead"]["start"], self["overhead"]["end"]
        self.columns = {KERNEL: self[KERNEL]}  # nobody needs the others any more
        return Capture(self.path, activities, calls, columns, nodes, overhead, [], facts, [], self)

    def _own_facts(self) -> dict[str, str]:
        """What the trace says about itself."""
        facts, distributed = {}, self.facts.get("distributedInfo")
        if isinstance(distributed, dict):
            for key, name in ((RANK_KEY, "rank"), (RANKS_KEY, "world_size")):
                if isinstance(distributed.get(name), int):
                    facts[key] = str(distributed[name])
        if self.whole_microseconds:
            facts[RESOLUTION_KEY] = "1000"
        if self.damage:
            facts[DAMAGE_KEY] = self.damage
        return facts

    def _notes(self, activities: Activities, on_gpu: bool) -> Iterator[str]:
        """What the trace lacks, a line each."""
        if self.damage:
            yield f"only what comes before the damage was read: {self.damage}"
        if self.repairs:
            careless = "bytes that are no text, bare inf, or unescaped quotes"
            yield f"invalid JSON was repaired ({self.repairs:,} times): {careless}"
        if not on_gpu:
            yield "the trace holds nothing of a GPU: operators of PyTorch on the processor stand for kernels"
            return
        is_kernel, calls = activities.kind == KERNEL, self["call"]
        kernels, correlation = int(is_kernel.sum()), activities.correlation[is_kernel]
        if without_call := np.count_nonzero(~np.isin(correlation, calls["correlation"])):
            yield (
                f"{without_call:,} of {kernels:,} kernels have no call in the trace (launched before it began): their"
                " time counts, their range is not known"
            )
        is_replayed = np.isin(correlation, calls["correlation"][self.rows_named("call", "GraphLaunch")])
        has_node, replayed = activities.node[is_kernel] != NONE, f"of {kernels:,} kernels ran in replayed CUDA graphs"
        if count := int((is_replayed & has_node).sum()):
            yield f"{count:,} {replayed}: their ranges are those of the captured calls, in the order of the capture"
        if count := int((is_replayed & ~has_node).sum()):
            yield (
                f"{count:,} {replayed}: their range is that of the launch, since no capture in the trace certainly has"
                " the same calls; for their modules, begin the trace before the capture, or record with nsys:"
                " kernel-tables record --profiler nsys -- python train.py"
            )
        if self.whole_microseconds:
            yield "times are whole microseconds: a kernel of 0.9 µs counts as 0 or 1"
        if not any(text.startswith(modules.MODULE) for text in self.texts):
            reason = "compiled models call none" if self.facts.get("with_stack") else "with_stack=True records them"
            yield f"no call of a module is in the trace ({reason}): ranges are annotations of the program and operators"

    def _operator_work(self) -> tuple[Activities, Calls]:
        """The activities of a program without a GPU: outermost operators, which launch themselves, then collectives of
        Gloo, each launched by the operator that started it."""
        operators, (annotations, starters) = modules.outermost_operators(self), modules.gloo_collectives(self)
        if self["operator"]["is_open"][operators].any():
            raise TraceError(f"{self.path}: an operator has no duration: damaged, write the trace again")
        start, end, thread, name = (
            np.concatenate([self["operator"][column][operators], self["annotation"][column][annotations]])
            for column in ("start", "end", "thread", "name")
        )
        launching = np.concatenate([operators, starters])  # by activity, the operator that launched it, or NONE
        correlation = np.arange(1, len(start) + 1)
        work = dict.fromkeys(("node", "grid", "block", "bytes", "copy"), np.full(len(start), NONE))
        work |= {"start": start, "end": end, "name": name, "correlation": correlation}
        work |= {"kind": np.zeros(len(start), np.int8), "stream": -1 << 32 | thread & THREAD_BITS}
        self.columns[KERNEL] = work
        activities = self._activities(work, process_of(thread))
        rows = launching[launching != NONE]
        calls = {column: self["operator"][column][rows] for column in ("start", "end", "thread", "name")}
        return activities, self._calls(calls | {"correlation": correlation[launching != NONE]})

    def _calls(self, calls: dict[str, np.ndarray]) -> Calls:
        threads, thread = np.unique(calls["thread"], return_inverse=True)
        names = {number: re.sub(r"_v\d+$", "", self.texts[number]) for number in np.unique(calls["name"]).tolist()}
        start, end, correlation, name = (calls[column] for column in ("start", "end", "correlation", "name"))
        return Calls(start, thread.reshape(-1), threads, correlation, name, names, end, np.zeros(len(end), bool))

    def _device_work(self) -> tuple[Activities, Calls]:
        """The activities of the GPU and the calls. Raises ImpossibleCapture if one ends before it starts."""
        work = self[KERNEL]
        self._name_memory_operations(work)
        for number, word in ((COPY, "__amd_rocclr_copyBuffer"), (FILL, "__amd_rocclr_fillBuffer")):
            work["kind"][self.rows_named(KERNEL, word)] = number  # ROCm 7.1 calls them kernels
        order = np.argsort(work["kind"], kind="stable")
        self.columns[KERNEL] = work = {name: column[order] for name, column in work.items()}
        calls = {name: column[self["call"]["correlation"] > 0] for name, column in self["call"].items()}
        calls = self._with_operators(calls, work)
        if (work["end"] < work["start"]).any() or (calls["end"] < calls["start"]).any():
            message = "an activity or a call ends before it starts: write the trace again"
            raise impossible(self.path, "ends_before_start", message)
        self.columns["call"] = calls
        return self._activities(work, self._processes(calls, work)), self._calls(calls)

    def _activities(self, work: dict[str, np.ndarray], process: np.ndarray) -> Activities:
        work["process"] = process
        used, name = np.unique(work["name"], return_inverse=True)
        columns = (work[column] for column in ("start", "end", "correlation"))
        names = [self.texts[number] for number in used.tolist()]
        return Activities(
            work["kind"], name.reshape(-1).astype(np.int32), names, *columns, process, work["stream"], work["node"]
        )

    def _name_memory_operations(self, work: dict[str, np.ndarray]) -> None:
        """Names copies and fills as nsys does."""
        words = {"H": "Host", "D": "Device", "A": "Array"}
        named = Numbers({text: number for number, text in enumerate(self.texts)})
        numbers = [NONE]
        for name, kind, _, _ in self.copy_words:
            kind = kind if kind != "None" else f"{name} - -".split()[1]
            known = len(kind) == 4 and kind[1:3] == "to" and kind[0] in words and kind[3] in words
            numbers.append(named[f"[CUDA memcpy {f'{words[kind[0]]}-to-{words[kind[3]]}' if known else 'Unknown'}]"])
        is_copy = work["kind"] == COPY
        work["name"][is_copy] = np.array(numbers)[work["copy"][is_copy] + 1]
        work["name"][work["kind"] == FILL] = named["[CUDA memset]"]
        self.texts = list(named)

    def _with_operators(self, calls: dict, work: dict) -> dict[str, np.ndarray]:
        """The calls, and one more for each operator that an activity without a correlation id names: RCCL's have 0."""
        correlation, operators = work["correlation"], self["operator"]
        lost = np.flatnonzero((correlation <= 0) & (work["external"] > 0))
        known, first = np.unique(operators["order"], return_index=True)
        if not len(lost) or not len(known):
            return calls
        place = np.minimum(np.searchsorted(known, work["external"][lost]), len(known) - 1)
        found = known[place] == work["external"][lost]
        rows, index = np.unique(first[place[found]], return_inverse=True)
        new = np.arange(len(rows)) + 1 + max(int(calls["correlation"].max(initial=0)), int(correlation.max(initial=0)))
        correlation[lost[found]] = new[index.reshape(-1)]
        self.texts.append("LaunchKernel by an operator")
        more = {name: operators[name][rows] for name in ("start", "end", "thread")}
        more |= {"name": np.full(len(rows), len(self.texts) - 1), "correlation": new, "external": new}
        return {name: np.concatenate([column, more[name]]) for name, column in calls.items()}

    def _processes(self, calls: dict, work: dict) -> np.ndarray:
        """The process of each activity: that of its call, else that of the first event of the host. Raises TraceError
        if the file holds several ranks whose correlation ids cannot be told apart."""
        of_host = [self[kind]["thread"] for kind in ("call", "operator", "annotation") if len(self[kind]["thread"])]
        usual = process_of(int(of_host[0][0])) if of_host else 0
        correlation, process = np.unique(np.stack([calls["correlation"], process_of(calls["thread"])]), axis=1)
        if len(np.unique(correlation)) < len(correlation):
            raise TraceError(
                f"{self.path}: traces of {len(np.unique(process))} processes are merged in it, and their correlation"
                " ids collide, so that nobody knows which launched what: give the trace of each rank"
            )
        if not len(correlation):
            return np.full(len(work["start"]), usual)
        place = np.minimum(np.searchsorted(correlation, work["correlation"]), len(correlation) - 1)
        return np.where(correlation[place] == work["correlation"], process[place], usual)

    # Replayed graphs

    def _graph_nodes(self, activities: Activities) -> Nodes:
        """The creations of the nodes of replayed graphs, as far as they are certain; sets activities.node.

        Kineto records no creation. But if the activities of a graph run one after another, their order is that of their
        capture, so the n-th activity of a replay belongs to the n-th call. With node ids (PyTorch 2.12), their order
        is that of the capture, also where branches run at once and loops repeat. A node has the number of its call.
        """
        max_overlap = 500  # ns: by inexact times, activities that run in a row overlap by up to 96 ns on an H200
        node_ids, activities.node = activities.node, np.full(len(activities), NONE)
        calls, created, captures = self["call"], [np.empty(0, np.int64)], self._captures(activities)
        launches = self.rows_named("call", "GraphLaunch") if captures else created[0]
        launched = dict(zip(calls["correlation"][launches].tolist(), calls["start"][launches].tolist(), strict=False))
        members = np.flatnonzero(np.isin(activities.correlation, [one for one in launched if one > 0]))
        members = members[np.lexsort((activities.start[members], activities.correlation[members]))]
        first = np.flatnonzero(np.diff(activities.correlation[members], prepend=NONE))
        replays: dict[int, list] = {}  # by capture
        for rows in np.split(members, first[1:]) if len(members) else []:
            order = np.arange(len(rows))
            if has_ids := bool((node_ids[rows] > 0).all()):
                order = np.unique(node_ids[rows], return_inverse=True)[1].reshape(-1)
            distinct = rows[np.unique(order, return_index=True)[1]]
            kinds, time = activities.kind[distinct].tobytes(), launched[int(activities.correlation[rows[0]])]
            possible = [number for number, (_, known, end) in enumerate(captures) if known == kinds and end <= time]
            if len(possible) == 1:
                is_serial = bool((activities.end[rows[:-1]] - activities.start[rows[1:]] < max_overlap).all())
                names = activities.name[distinct].tobytes()
                replays.setdefault(possible[0], []).append((rows, order, has_ids or is_serial, names))
        for number, ran in replays.items():
            if all(is_certain and names == ran[0][3] for _, _, is_certain, names in ran):
                created.append(captures[number][0])
                for rows, order, _, _ in ran:
                    activities.node[rows] = captures[number][0][order]
        rows = np.concatenate(created)
        return Nodes(calls["start"][rows], calls["thread"][rows], rows, np.full(len(rows), NONE))

    def _captures(self, activities: Activities) -> list[tuple[np.ndarray, bytes, int]]:
        """Of each stream capture: the calls that created nodes, their kinds, and its end."""
        calls, captures = self["call"], []
        begins, ends = self.rows_named("call", "StreamBeginCapture"), self.rows_named("call", "StreamEndCapture")
        if not len(begins):
            return []
        kinds = np.full(len(calls["start"]), NONE, np.int8)
        for kind, words in enumerate([("LaunchKernel", "LaunchCooperativeKernel"), ("Memcpy",), ("Memset",)]):
            kinds[self.rows_named("call", *words)] = kind
        creating = np.flatnonzero((kinds != NONE) & ~np.isin(calls["correlation"], activities.correlation))
        creating = creating[np.argsort(calls["start"][creating], kind="stable")]
        for row in begins.tolist():
            begin = calls["end"][row]
            later = ends[(calls["thread"][ends] == calls["thread"][row]) & (calls["start"][ends] > begin)]
            if len(later):
                end = int(calls["start"][later].min())
                # Of all threads, since autograd's launches into the capture, too.
                inside = creating[(calls["start"][creating] > begin) & (calls["start"][creating] < end)]
                captures.append((inside, kinds[inside].tobytes(), end))
        return captures

    # What only some commands need

    def sizes(self) -> dict[str, np.ndarray]:
        """The grid and the block of each activity as text, "16x6x8"; "" if unknown."""
        texts = []
        for raw in self.size_texts:
            try:
                size = msgspec.json.decode(raw, type=list[int])
            except ValueError:
                size = []
            texts.append("x".join(map(str, size)) if len(size) == 3 else "")
        texts = np.array([*texts, ""], object)
        return {name: texts[self[KERNEL][name]] for name in ("grid", "block")}

    def copies(self) -> dict[str, np.ndarray]:
        """The bytes, and the kinds of the source's and the target's memory (ENUM_CUDA_MEM_KIND), of each activity."""
        names = ("pageable", "pinned", "device", "array", "managed", "device static", "managed static")  # by number
        kinds = []
        for name, _, source, target in self.copy_words:
            between = re.search(r"\(([\w ]+?) -> ([\w ]+?)\)", name)
            pair = [word.lower() for word in (between.groups() if between else (source, target))]
            kinds.append([names.index(word) for word in pair] if set(pair) <= set(names) else [NONE, NONE])
        source, target = np.array([*kinds, [NONE, NONE]], np.int64)[self[KERNEL]["copy"]].T
        return {"bytes": self[KERNEL]["bytes"], "source": source, "target": target}

    def torch_collectives(self) -> dict[tuple[int, int], tuple[str | None, int | None, int]]:
        """What PyTorch asked of kernels of NCCL, by process and correlation id: the operation; the larger of a rank's
        input and output in bytes, if that is known and its call launched no other kernel; a number of the group of
        ranks, the same on each of them."""
        types = {
            8: "Double Long ComplexFloat", 4: "Float Int", 2: "Half BFloat16 Short",
            1: "Char Byte Bool Float8_e4m3fn Float8_e5m2",
        }  # fmt: skip
        item_bytes = {name: size for size, names in types.items() for name in names.split()}
        launched = Counter(str(one.external) for one in self.collectives)
        processes = dict(zip(self[KERNEL]["correlation"].tolist(), self[KERNEL]["process"].tolist(), strict=True))
        found = {}
        for one in self.collectives:
            if not isinstance(one.correlation, int) or one.correlation not in processes:
                continue
            counts = [int(n) if str(n).isdecimal() else 1 << 56 for n in (one.elements_in, one.elements_out)]
            size = item_bytes.get(str(one.dtype)) if launched[str(one.external)] == 1 else None
            group = hashlib.sha256(f"{one.group} {one.group_ranks}".encode()).digest()
            found[processes[one.correlation], one.correlation] = (
                operation_named(str(one.collective).replace("_", "").lower()),
                max(counts) * size if size and max(counts) < 1 << 56 else None,
                int.from_bytes(group[:7]),
            )
        return found

    def gpus(self) -> list[str]:
        """The names of the GPUs, sorted."""
        devices = self.facts.get("deviceProperties")
        devices = [one for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
        return sorted(str(one.get("name", "unnamed")) for one in devices)

    def began_utc_ns(self) -> int | None:
        """The time of the first event in nanoseconds since 1970, if the trace states its base."""
        base_ns = self.facts.get("baseTimeNanoseconds")
        return base_ns + self.first_ns if isinstance(base_ns, int) and abs(base_ns) < 1 << 61 else None


def _texts(values: list[msgspec.Raw]) -> list[bytes]:
    """The undecoded values as bytes; NUL is in no JSON."""
    return b"\0".join(values).split(b"\0") if values else []


def _integers(values: list, substitute: Callable[[Any], int] = lambda _: NONE) -> np.ndarray:
    """The values as integers; what is none becomes NONE, or its substitute. Integers in quotes, and floats such as 1.0,
    are integers, too."""
    try:
        return np.array(array("q", values))
    except (TypeError, OverflowError):
        pass

    def integer(value: Any) -> int:
        try:
            number = float(value) if isinstance(value, str) and "." in value else value
            result = int(number, 0) if isinstance(number, str) else int(number)
            if -(1 << 63) <= result < 1 << 63 and (isinstance(number, str) or result == number):
                return result
        except (TypeError, ValueError, OverflowError):
            pass
        return substitute(value)

    return np.array([integer(value) for value in values], np.int64)
