"""Reading a trace of torch.profiler (Kineto's JSON, gzipped or not) into the same columns as an export of nsys.

Times become integer nanoseconds from the first event. In a trace without a GPU, operators of PyTorch on the processor
are the activities.
"""

import hashlib
import re
import tempfile
import zlib
from array import array
from collections import Counter, defaultdict
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from kernel_tables import errors, modules
from kernel_tables.capture import (
    NONE,
    THREAD_BITS,
    Activities,
    Calls,
    Capture,
    Numbers,
    Ranges,
    Source,
    operation_named,
    process_of,
    range_name,
)  # fmt: skip
from kernel_tables.errors import ImpossibleCapture, TraceError
from kernel_tables.events import ADVICE, GZIP, Args, Event, EventFile
from kernel_tables.publish import write_capture

HOUR_NS = 3_600_000_000_000
HOST_KINDS = ("annotation", "function", "operator")  # of events that may have no end
KERNEL, COPY, FILL = range(3)  # in the order of capture.KINDS
KINDS = {  # by category; they changed over the years, and ROCm writes calls of HIP into cuda_runtime
    "kernel": KERNEL, "Kernel": KERNEL, "gpu_memcpy": COPY, "Memcpy": COPY, "gpu_memset": FILL, "Memset": FILL,
    "cuda_runtime": "call", "cuda_driver": "call", "Runtime": "call", "hip_runtime": "call", "xpu_runtime": "call",
    "xpu_driver": "call", "privateuse1_runtime": "call", "privateuse1_driver": "call", "mtia_runtime": "call",
    "cpu_op": "operator", "Operator": "operator", "user_annotation": "annotation", "python_function": "function",
    "overhead": "overhead", "graph_host_node": "host function",
}  # fmt: skip


def is_json(begin: bytes, path: Path) -> bool:
    """Whether a file, gzipped or not, with these first bytes begins like JSON, or is named so."""
    if begin.startswith(GZIP):
        try:
            begin = zlib.decompressobj(31).decompress(begin, 4096)
        except zlib.error:
            begin = b""
    return begin.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")) or ".json" in path.suffixes[-2:]


def read(path: Path) -> Capture:
    """The capture in a trace. Raises TraceError for no trace or no activities, ImpossibleCapture if it is cut off."""
    events = Events(path)
    on_gpu = len(events[KERNEL]["start"]) > 0
    if not on_gpu and (launches := len(events.rows_named("call", "Launch"))):
        raise TraceError(
            f"{path}: a trace without kernels, though with {launches:,} calls that launch them: the profiler saw"
            " nothing of the GPU; record with ProfilerActivity.CUDA, without another profiler around the program"
        )
    if not on_gpu and not len(events["operator"]["start"]):
        raise TraceError(f"{path}: a trace without kernels and operators; {ADVICE}")
    return events.capture(on_gpu, modules.derived_ranges(events, on_gpu=on_gpu), events.facts(on_gpu))


def read_recorded(path: Path, torch_version: str, on_gpu: bool | None = None) -> Capture:
    """The capture in a trace that this project's recorder had PyTorch write: the ranges are annotations alone.

    `on_gpu`: whether the program used a GPU, by default whether the trace has calls or activities of one. Raises
    TraceError without activities."""
    events = Events(path)
    counts = {kind: len(columns["start"]) for kind, columns in events.columns.items() if kind != "overhead"}
    if not any(counts.values()):
        raise TraceError("nothing of PyTorch ran in the window; take a later or longer one")
    on_gpu = counts[KERNEL] + counts["call"] > 0 if on_gpu is None else on_gpu
    facts = {"EXPORT_PRODUCT_VERSION": torch_version}
    capture = events.capture(on_gpu, modules.recorded_ranges(events, on_gpu=on_gpu), facts)
    if not len(capture.activities):
        raise TraceError(
            f"the profiler recorded {sum(counts.values())} events and no {'kernel' if on_gpu else 'ATen operator'}: on"
            " a GPU, CUPTI may be refused to this user or taken by another profiler (nsys around this program?)"
        )
    return capture


def export_capture(profiler: Any, path: Path, on_gpu: bool, torch_version: str) -> None:
    """Writes what a finished torch.profiler.profile recorded, as SQLite, whole; TraceError without activities."""
    with tempfile.TemporaryDirectory(prefix="kineto-") as folder:
        trace_path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace_path))
        write_capture(read_recorded(trace_path, torch_version, on_gpu), path)


class Events(Source):
    """The events of each kind in columns: start, end (ns from the first event), name (a number of `texts`), thread, ...

    Activities of the GPU are of the kind KERNEL, with their `kind`. Raises ImpossibleCapture for JSON that is cut off,
    TraceError if the file holds several ranks."""

    def __init__(self, path: Path):
        self.path, self.file = path, EventFile(path)
        self.whole_lengths = {True: True, False: True}  # of activities, of operators: whether they are whole µs
        self.process, self.further_ids = 0, 0
        self.labels: set[tuple[int, str]] = set()  # of activities whose process is text: device and process
        self.names, self.shapes, self.size_texts, self.copy_words = Numbers(), Numbers(), Numbers(), Numbers()
        self._substitutes, self.collectives = Numbers(), []  # collectives: details of the kernels of these
        self.columns = self._read()
        if self.file.facts.written_by:
            raise TraceError(f"{path}: a timeline written by `kernel-tables trace`, not a capture; {ADVICE}")
        self._count_from_first()
        self.texts = list(self.names)
        if (ranks := self._ranks()) > 1:
            advice = "whose events cannot be told apart: give their files (the trace of each rank)"
            raise TraceError(f"{path}: this file holds {ranks} ranks, {advice}")

    def __getitem__(self, kind: Any) -> dict[str, np.ndarray]:
        return self.columns[kind]

    def named(self, kind: Any) -> list[str]:
        return [self.texts[number] for number in self[kind]["name"].tolist()]

    def rows_named(self, kind: Any, *words: str) -> np.ndarray:
        """The rows of the events of a kind whose names contain one of the words."""
        numbers = [number for number, text in enumerate(self.texts) if any(word in text for word in words)]
        return np.flatnonzero(np.isin(self[kind]["name"], numbers))

    def _read(self) -> dict[Any, dict[str, np.ndarray]]:
        blocks: dict[Any, list[dict]] = {kind: [self._columns(kind, [])] for kind in dict.fromkeys(KINDS.values())}
        for events in self.file:
            by_kind: dict[Any, list[Event]] = defaultdict(list)
            for event in events:
                if event.cat in KINDS:
                    by_kind[KINDS[event.cat]].append(event)
            by_kind["function"] = [event for event in by_kind["function"] if modules.is_wanted(event.name or "")]
            for kind, of_kind in by_kind.items():
                whole = [event for event in of_kind if event.ph == "X"]
                try:
                    blocks[kind].append(self._columns(kind, whole))
                except ValueError:
                    if kind in (KERNEL, COPY, FILL) and any(event.dur is None for event in whole):
                        problem = "a kernel has no duration: damaged, write the trace again"
                        raise TraceError(f"{self.path}: {problem}") from None
                    whole = [event for event in whole if _has_times(kind, event)]
                    blocks[kind].append(self._columns(kind, whole))
                self.file.bad_events += len(of_kind) - len(whole)
        blocks[KERNEL] += [*blocks.pop(COPY), *blocks.pop(FILL)]
        return {
            kind: {name: np.concatenate([block[name] for block in parts]) for name in parts[0]}
            for kind, parts in blocks.items()
        }

    def _columns(self, kind: Any, events: list[Event]) -> dict[str, np.ndarray]:
        """The columns of events of one kind. Raises ValueError for what is no time."""
        no_args, columns = Args(), {}
        args, names = [event.args or no_args for event in events], [event.name or "" for event in events]
        start, lengths = _nanoseconds(events), np.rint(np.array([event.dur for event in events], float) * 1000)
        if kind in HOST_KINDS:  # Kineto writes a negative duration if it did not see the end
            columns["is_open"] = ~(lengths >= 0)
            lengths = np.where(columns["is_open"], 0, lengths)
        columns |= {"start": start, "end": start + _checked(lengths)}
        if kind in (KERNEL, COPY, FILL, "operator"):
            self.whole_lengths[kind != "operator"] &= not (lengths % 1000).any()
        if kind in (KERNEL, COPY, FILL):
            return columns | self._device_columns(kind, names, events, args)
        columns |= {"name": self.names.of(names), "thread": self._threads(events)}
        numbers = {"call": ("correlation",), "operator": ("sequence", "forward_thread")}.get(kind, ())
        columns |= {name: _integers_of(args, name) for name in ("external", *numbers)}
        if kind == "operator":
            columns["shapes"] = self.shapes.of([bytes(one.shapes) for one in args])
        return columns

    def _device_columns(self, kind: int, names: list[str], events: list[Event], args: list[Args]) -> dict:
        """The columns of activities. Copies and fills are named as nsys does."""
        columns = dict.fromkeys(("grid", "block", "bytes", "copy"), np.full(len(events), NONE))
        columns |= {name: _integers_of(args, name) for name in ("node", "graph", "correlation")}
        columns |= {"kind": np.full(len(events), kind, np.int8), "external": columns["correlation"]}
        if (columns["correlation"] <= 0).any():  # else nobody needs the other number
            columns["external"] = _integers_of(args, "external")
        device, stream = _integers_of(args, "device"), _integers_of(args, "stream")
        if (device == NONE).any() or (stream == NONE).any():  # what the process and thread of an activity mean, too
            device = np.where(device == NONE, _integers_of(events, "pid"), device)
            stream = np.where(stream == NONE, _integers_of(events, "tid"), stream)
        if events and isinstance(events[0].pid, str):
            self.labels |= set(zip(np.maximum(device, 0).tolist(), [str(one.pid) for one in events], strict=True))
        columns["stream"] = np.maximum(device, 0) << 32 | np.maximum(stream, 0) & 0xFFFFFFFF
        if kind == KERNEL:
            columns["grid"] = self.size_texts.of([bytes(one.grid) for one in args])
            columns["block"] = self.size_texts.of([bytes(one.block) for one in args])
            for one in args:
                if one.collective is not None:
                    one.grid = one.block = None  # which would keep the block of the file in memory
                    self.collectives.append(one)
        else:
            columns["bytes"] = _integers_of(args, "bytes")
        if kind == COPY:
            words = {"H": "Host", "D": "Device", "A": "Array"}
            copies = [*zip(names, args, strict=True)]
            columns["copy"] = self.copy_words.of([(name, str(one.source), str(one.target)) for name, one in copies])
            pairs = [re.search(r"\b([HDA])to([HDA])\b", str(one.copy_kind or name)) for name, one in copies]
            names = [f"{words[pair[1]]}-to-{words[pair[2]]}" if pair else "Unknown" for pair in pairs]
            names = [f"[CUDA memcpy {name}]" for name in names]
        elif kind == FILL:
            names = ["[CUDA memset]"] * len(events)
        return columns | {"name": self.names.of(names)}

    def _threads(self, events: list[Event]) -> np.ndarray:
        """The global ids of threads; for what is no small number stands one from the highest down."""
        columns = []
        for values in ([event.pid for event in events], [event.tid for event in events]):
            columns.append(numbers := _integers(values))
            for row in np.flatnonzero((numbers < 0) | (numbers > THREAD_BITS)).tolist():
                numbers[row] = THREAD_BITS - self._substitutes[str(values[row])]
        return columns[0] << 24 | columns[1]

    def _count_from_first(self) -> None:
        """Makes times count from the first event, and lets events without an end last to the end of the trace."""
        work = self[KERNEL]
        host = [one for kind, one in self.columns.items() if kind not in (KERNEL, "overhead") and len(one["start"])]
        host = host or [work] * (len(work["start"]) > 0)
        first = min((int(one["start"].min()) for one in host), default=0)
        last = max((int(one["end"].max()) for one in host), default=0)
        # Nothing ran an hour before or after all that the host did: such a time is lost, and moves no other.
        is_lost = (work["start"] < first - HOUR_NS) | (work["start"] > last + HOUR_NS)
        ends = work["end"][~is_lost & (work["end"] < last + HOUR_NS)]
        self.first_ns = first = min(first, int(work["start"][~is_lost].min(initial=first)))
        work["start"][is_lost] = work["end"][is_lost] = first
        for columns in self.columns.values():
            columns["start"] -= first
            columns["end"] -= first
        for kind in HOST_KINDS:
            self[kind]["end"][self[kind]["is_open"]] = int(ends.max(initial=last)) - first

    def _ranks(self) -> int:
        """How many ranks were merged into the file; sets `process`. In one rank one process launches, most ids stand
        for one event of a name, and a thread has a step but once, and does one thing at a time."""
        calls, operators, annotations = self["call"], self["operator"], self["annotation"]
        launched = calls["thread"][np.isin(calls["correlation"], self[KERNEL]["correlation"])]
        threads = launched if len(launched) else operators["thread"]
        if not len(threads):
            self.process = process_of(int(annotations["thread"][:1].sum()))
            return max(Counter(device for device, _ in self.labels).values(), default=1)
        processes, events = np.unique(process_of(threads), return_counts=True)
        self.process = int(processes[np.argmax(events)])
        if (ranks := int((events > 1).sum())) > 1:  # a single event of another process is no rank
            return ranks
        rows = self.rows_named("annotation", "ProfilerStep#")
        steps = {name: annotations[name][rows] for name in ("name", "thread")}
        for columns, ids in ((calls, "correlation"), (operators, "external"), (steps, "thread")):
            ids_and_names = (columns[ids] * len(self.names) + columns["name"])[columns[ids] > 0]
            counts = np.unique(ids_and_names, return_counts=True)[1]
            if len(counts) > 1 and np.median(counts) > 1:
                return int(np.median(counts))
        return 1 + any(map(modules.often_cross, (calls, operators)))

    # The capture

    def capture(self, on_gpu: bool, ranges: list[modules.Range], facts: dict[str, str]) -> Capture:
        calls = self._device_work() if on_gpu else self._operator_work()
        work = self[KERNEL] | {"process": np.full(len(self[KERNEL]["start"]), self.process)}
        used, place = np.unique(work["name"], return_inverse=True)
        kernels = [self.texts[number] for number in used.tolist()]
        times = (work[column] for column in ("start", "end", "correlation", "process", "stream", "node"))
        activities = Activities(work["kind"], place.reshape(-1).astype(np.int32), kernels, *times)
        texts = {text: range_name(text) for text in dict.fromkeys(one.name for one in ranges)}
        names = Numbers()
        name = names.of([texts[one.name] for one in ranges])
        start, end, thread = (np.array([one[place] for one in ranges], np.int64) for place in range(3))
        unclosed = int(self["annotation"]["is_open"].sum())
        columns = Ranges.in_order(start, end, thread, name, list(names), unclosed=unclosed)
        nodes = modules.graph_nodes(self, activities)
        facts = {"EXPORT_PRODUCT_NAME": "PyTorch profiler (Kineto)", "CAPTURE_BACKEND": "torch"} | facts
        overhead, functions = ((self[kind]["start"], self[kind]["end"]) for kind in ("overhead", "host function"))
        functions = *functions, [name.removeprefix("HostNode: ") for name in self.named("host function")]
        self.columns = {KERNEL: self[KERNEL]}  # nobody needs the others any more
        return Capture(self.path, activities, calls, columns, nodes, overhead, functions, [], facts, [], self)

    def facts(self, on_gpu: bool) -> dict[str, str]:
        """What the trace says about itself; its notes say what it lacks, a line each, beyond what `check` tells."""
        told, file, notes = self.file.facts, self.file, []
        if file.repairs:
            notes.append(f"invalid JSON was repaired ({file.repairs:,} times): bytes that are no text, or bare inf")
        if file.bad_events:
            notes.append(f"{file.bad_events:,} events are left out: they are invalid, or have no time or no end")
        if not on_gpu:
            notes.append("the trace holds nothing of a GPU: operators of PyTorch on the processor stand for kernels")
        elif not any(text.startswith(modules.MODULE) for text in self.texts):
            reason = "compiled models call none" if told.with_stack else "with_stack=True records them"
            notes.append(f"no call of a module is in the trace ({reason}): ranges are annotations and operators")
        facts = {"EXPORT_PRODUCT_VERSION": "unknown", errors.NOTES_KEY: "\n".join(notes)}
        of_rank = told.distributed_info if isinstance(told.distributed_info, dict) else {}
        names = {errors.RANK_KEY: "rank", errors.RANKS_KEY: "world_size"}
        facts |= {key: str(of_rank[name]) for key, name in names.items() if name in of_rank}
        if self.whole_lengths[on_gpu]:
            facts[errors.RESOLUTION_KEY] = "1000"
        if bad := file.bad_events + file.repairs:
            facts[errors.BAD_KEY] = str(bad)
        return facts

    def _operator_work(self) -> Calls:
        """The calls of a program without a GPU, whose activities become outermost operators, which launch themselves,
        and collectives of Gloo, each launched by the operator that started it."""
        operators, (annotations, starters) = modules.outermost_operators(self), modules.gloo_collectives(self)
        if self["operator"]["is_open"][operators].any():
            raise TraceError(f"{self.path}: an operator has no duration: damaged, write the trace again")
        work = {
            column: np.concatenate([self["operator"][column][operators], self["annotation"][column][annotations]])
            for column in ("start", "end", "thread", "name")
        }
        launching = np.concatenate([operators, starters])  # by activity, the operator that launched it, or NONE
        thread, count = work.pop("thread"), len(launching)
        work |= dict.fromkeys(("node", "graph", "grid", "block", "bytes", "copy"), np.full(count, NONE))
        work |= {"correlation": np.arange(1, count + 1), "kind": np.zeros(count, np.int8)}
        self.columns[KERNEL] = work | {"stream": -1 << 32 | thread & THREAD_BITS}
        has_call = launching != NONE
        calls = {column: self["operator"][column][launching[has_call]] for column in ("start", "end", "thread", "name")}
        calls["correlation"] = work["correlation"][has_call]
        return self._calls(calls)

    def _calls(self, calls: dict[str, np.ndarray]) -> Calls:
        threads, thread = np.unique(calls["thread"], return_inverse=True)
        names = {number: re.sub(r"_v\d+$", "", self.texts[number]) for number in np.unique(calls["name"]).tolist()}
        start, end, correlation, name = (calls[column] for column in ("start", "end", "correlation", "name"))
        return Calls(start, thread.reshape(-1), threads, correlation, name, names, end, np.zeros(len(end), bool))

    def _device_work(self) -> Calls:
        """The calls of a program on a GPU, whose activities become sorted by kind. Raises ImpossibleCapture."""
        work = self[KERNEL]
        for number, word in ((COPY, "__amd_rocclr_copyBuffer"), (FILL, "__amd_rocclr_fillBuffer")):
            work["kind"][self.rows_named(KERNEL, word)] = number  # ROCm 7.1 calls them kernels
        order = np.argsort(work["kind"], kind="stable")
        self.columns[KERNEL] = work = {name: column[order] for name, column in work.items()}
        calls = {name: column[self["call"]["correlation"] > 0] for name, column in self["call"].items()}
        self.columns["call"] = calls = self._with_operators(calls, work)
        if (calls["end"] < calls["start"]).any():
            fact = "a call ends before it starts: write the trace again"
            raise ImpossibleCapture(self.path, "ends_before_start", fact)
        return self._calls(calls)

    def _with_operators(self, calls: dict, work: dict) -> dict[str, np.ndarray]:
        """The calls, and one more for each operator, annotation or call whose external id an activity without a
        correlation id has, as RCCL's do: its correlation id is the external one and `further_ids`."""
        known = [self["operator"], self["function"], self["annotation"], self["call"]]
        known = {name: np.concatenate([one[name] for one in known]) for name in ("start", "end", "thread", "external")}
        correlation, external = work["correlation"], work["external"]
        is_lost = (correlation <= 0) & (external > 0) & np.isin(external, known["external"])
        self.further_ids = 2 + max(int(calls["correlation"].max(initial=0)), int(correlation.max(initial=0)))
        correlation[is_lost] = self.further_ids + external[is_lost]
        ids, rows = np.unique(known["external"], return_index=True)
        rows = rows[np.isin(ids, external[is_lost])]
        self.texts.append("LaunchKernel by an operator")
        more = {name: column[rows] for name, column in known.items()}
        more |= {"name": np.full(len(rows), len(self.texts) - 1), "correlation": self.further_ids + more["external"]}
        return {name: np.concatenate([column, more[name]]) for name, column in calls.items()}

    # What only some commands need

    def sizes(self) -> dict[str, np.ndarray]:
        texts = np.array(["x".join(re.findall(r"\d+", text.decode())) for text in self.size_texts] + [""], object)
        return {name: texts[self[KERNEL][name]] for name in ("grid", "block")}

    def copies(self) -> dict[str, np.ndarray]:
        kinds = ["pageable", "pinned", "device", "array", "managed", "device static", "managed static"]  # by number
        pairs = []
        for name, *pair in self.copy_words:
            between = re.search(r"\(([\w ]+?) -> ([\w ]+?)\)", name)
            pair = [word.lower() for word in (between.groups() if between else pair)]
            pairs.append([*map(kinds.index, pair)] if set(pair) <= set(kinds) else [NONE, NONE])
        source, target = np.array([*pairs, [NONE, NONE]], np.int64)[self[KERNEL]["copy"]].T
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
        externals = _integers_of(self.collectives, "external").tolist()
        launched, found = Counter(externals), {}
        for one, external in zip(self.collectives, externals, strict=True):
            correlation, *counts = _integers([one.correlation, one.elements_in, one.elements_out]).tolist()
            correlation = correlation if correlation > 0 else self.further_ids + external
            has_size = launched[external] == 1 and str(one.dtype) in item_bytes and min(counts) >= 0
            group = hashlib.sha256(f"{one.group} {one.group_ranks}".encode()).digest()
            found[self.process, correlation] = (
                operation_named(str(one.collective).replace("_", "").lower()),
                max(counts) * item_bytes[one.dtype] if has_size else None,
                int.from_bytes(group[:7]),
            )
        return found

    def gpus(self) -> list[str]:
        found = self.file.facts.device_properties
        gpus = found if isinstance(found, list) else []
        return sorted(str(one.get("name", "unnamed")) for one in gpus if isinstance(one, dict))

    def began_utc_ns(self) -> int | None:
        """The time of the first event in nanoseconds since 1970, if the trace states its base."""
        base_ns = self.file.facts.base_time_nanoseconds
        return base_ns + self.first_ns if isinstance(base_ns, int) else None


def _nanoseconds(events: list[Event]) -> np.ndarray:
    """The starts of events in nanoseconds, exactly as they are written. Raises ValueError for what is no time."""
    if not events:
        return np.empty(0, np.int64)
    joined = b" ".join([event.ts or b"none" for event in events])
    chars = np.frombuffer(joined + b" ", np.uint8)
    ends, points = np.flatnonzero(chars == ord(" ")), np.flatnonzero(chars == ord("."))
    is_exact = len(points) == len(events) and bool((ends - points == 4).all())  # three decimals each
    if (is_exact or not len(points)) and not joined.translate(None, b"0123456789. "):
        digits = joined.replace(b".", b"") if is_exact else joined.replace(b" ", b"000 ") + b"000"
        return _checked(np.fromstring(digits, np.int64, sep=" "))
    try:
        words = joined.replace(b'"', b"").decode().split(" ")
        return _checked(np.array([round(Decimal(word).scaleb(3)) for word in words], np.int64))
    except (ArithmeticError, OverflowError) as error:
        raise ValueError from error


def _checked(times: np.ndarray) -> np.ndarray:
    """The times as integers. Raises ValueError if one is none, or longer than 73 years."""
    if not (np.abs(times) < 1 << 61).all():
        raise ValueError
    return times.astype(np.int64, copy=False)


def _has_times(kind: Any, event: Event) -> bool:
    """Whether an event has a start and a duration, which those of HOST_KINDS may lack."""
    try:
        _nanoseconds([event])
    except ValueError:
        return False
    return kind in HOST_KINDS if event.dur is None else abs(event.dur) < 1e15


def _integers_of(objects: list[Event] | list[Args], field: str) -> np.ndarray:
    return _integers(list(map(attrgetter(field), objects)))


def _integers(values: list) -> np.ndarray:
    """The values as integers, also those in quotes; what is none becomes NONE."""
    try:
        return np.array(array("q", values))
    except (TypeError, OverflowError):
        found = (re.fullmatch(r"(-?\d{1,18})(?:\.0*)?", str(one)) for one in values)
        return np.array([int(match[1]) if match else NONE for match in found], np.int64)
