"""Reading a trace of torch.profiler (Kineto's JSON), gzipped or not, into the same columns as an export of nsys.

The file is decoded by msgspec in blocks of some megabytes. A block that is no valid JSON is repaired where writers are
known to be careless: bytes that are not UTF-8, bare inf and nan, unescaped quotes in names. Times stay text until they
become integer nanoseconds: microseconds since 1970 with three decimals have more digits than a float.
"""

import re
import zlib
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
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
    CaptureError,
    Finding,
    Nodes,
    Ranges,
    range_name,
)  # fmt: skip

BLOCK, GZIP = 8 << 20, b"\x1f\x8b"
EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
BARE = re.compile(rb"(?<=[:,\[\s])-?(?:[Nn]a[Nn]|[Ii]nf(?:inity)?)(?=\s*[,}\]])")
NAME = re.compile(rb'("name": ")([^\n]*?)(", "(?:pid|ts|cat|tid)":)')
ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})|(?<!\\)"')
THREE_DECIMALS = re.compile(rb"(?:-?\d{1,15}\.\d{3} )*+")
WHOLE = re.compile(rb"(?:-?\d{1,15} )*+")
NEVER = 1 << 61
KINDS = {
    "kernel": "kernel", "Kernel": "kernel", "gpu_memcpy": "copy", "Memcpy": "copy", "gpu_memset": "fill",
    "Memset": "fill", "cuda_runtime": "call", "cuda_driver": "call", "Runtime": "call", "hip_runtime": "call",
    "xpu_runtime": "call", "xpu_driver": "call", "privateuse1_runtime": "call", "privateuse1_driver": "call",
    "mtia_runtime": "call", "cpu_op": "operator", "Operator": "operator", "user_annotation": "annotation",
    "python_function": "function", "overhead": "overhead",
}  # fmt: skip
ARROWS = {"fwdbwd": "arrow", "forward_backward": "arrow"}  # from operators to the nodes that differentiate them
DEVICE_KINDS = ("kernel", "copy", "fill")  # in the order of capture.KINDS
COPIES = {
    "HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "HtoA": "Host-to-Array", "AtoH": "Array-to-Host",
    "AtoA": "Array-to-Array", "AtoD": "Array-to-Device", "DtoA": "Device-to-Array", "DtoD": "Device-to-Device",
    "HtoH": "Host-to-Host",
}  # fmt: skip
CREATING = {"kernel": ("LaunchKernel", "LaunchCooperativeKernel"), "copy": ("Memcpy",), "fill": ("Memset",)}
MAX_OVERLAP = 500  # ns: by inexact times, activities that run one after another overlap by up to 96 ns on an H200


class Args(msgspec.Struct, gc=False):
    correlation: Any = None
    external: Any = msgspec.field(name="External id", default=None)
    external_old: Any = msgspec.field(name="external id", default=None)
    device: Any = None
    stream: Any = None
    original_stream: Any = None
    node: Any = msgspec.field(name="graph node id", default=None)
    graph: Any = msgspec.field(name="graph id", default=None)
    copy_kind: Any = msgspec.field(name="copy kind", default=None)
    sequence: Any = msgspec.field(name="Sequence number", default=None)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=None)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())


class Event(msgspec.Struct, gc=False):
    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    id: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    args: Args | None = None


NO_ARGS, DECODER = Args(), msgspec.json.Decoder(list[Event])


def is_json(begin: bytes, path: Path) -> bool:
    """Whether a file, gzipped or not, with these first bytes begins like JSON."""
    if begin.startswith(GZIP):
        try:
            begin = zlib.decompressobj(31).decompress(begin, 4096)
        except zlib.error:
            begin = b""
    return begin.removeprefix(b"\xef\xbb\xbf").lstrip().startswith((b"{", b"[")) or ".json" in path.suffixes


def read(path: Path) -> Capture:
    """The capture in a trace. Raises CaptureError if the file is no trace, or holds nothing of a GPU."""
    trace = Trace(path)
    activities, calls = trace.device_work()
    ranges = modules.derived_ranges(trace)
    start, end, thread, name = (list(column) for column in zip(*ranges)) if ranges else ([], [], [], [])
    name = [range_name(text) or UNNAMED for text in name]
    index = {text: number for number, text in enumerate(dict.fromkeys(name))}
    numbers = np.array([index[text] for text in name], np.int32)
    start, end, thread = (np.array(column, np.int64) for column in (start, end, thread))
    zeros = np.zeros(len(start), np.int64)
    unclosed = trace.unclosed
    columns = Ranges.in_order(start, end, thread, numbers, list(index), zeros, zeros == 1, {}, unclosed)
    overhead = trace["overhead"]["start"], trace["overhead"]["end"]
    nodes = trace.graph_nodes(activities)
    facts = trace.facts | {"CAPTURE_BACKEND": "torch", "modules": modules.has_modules(trace)}
    facts["whole_microseconds"] = trace.whole_microseconds
    if trace.repairs:
        trace.findings.append(Finding("warning", "repaired_json", trace.repairs, 0, f"{trace.repairs} parts of the JSON were"
                                      " invalid, and repaired: bytes that are no text, bare inf, unescaped quotes"))  # fmt: skip
    return Capture(path, activities, calls, columns, nodes, overhead, [], facts, trace.findings)


class Trace:
    """The events of each kind in columns: start, end (ns from the first event), name (a number of `names`), thread."""

    def __init__(self, path: Path):
        self.path, self.facts, self.findings = path, {}, []
        self.names: dict[str, int] = {}
        self.shapes: dict[bytes, int] = {}
        self.labels: dict[int, str] = {}  # by process: "TP00-DP00", if it was merged from several ranks' traces
        self._threads: dict[tuple, int] = {}
        self._substitutes: dict[str, int] = {}
        self.repairs = self.unclosed = 0
        self.whole_microseconds = True
        blocks: dict[str, list[dict]] = {kind: [] for kind in (*KINDS.values(), "arrow")}
        for events in self._blocks():
            by_kind: dict[str, list[Event]] = {}
            for event in events:
                kinds = KINDS if event.ph == "X" else ARROWS if event.ph in ("s", "f") else ()
                if event.cat in kinds:
                    by_kind.setdefault(kinds[event.cat], []).append(event)
            if functions := by_kind.get("function"):
                by_kind["function"] = [event for event in functions if modules.is_wanted(event.name or "")]
            for kind, kind_events in by_kind.items():
                if kind_events:
                    blocks[kind].append(self._columns(kind, kind_events))
        empty = {kind: self._columns(kind, []) for kind in blocks}
        self.columns = {
            kind: {name: np.concatenate([block[name] for block in (*parts, empty[kind])]) for name in empty[kind]}
            for kind, parts in blocks.items()
        }
        timed = [columns for columns in self.columns.values() if len(columns["start"])]
        self.first = min((int(columns["start"].min()) for columns in timed), default=0)
        for columns in timed:
            columns["start"] -= self.first
            columns["end"] -= self.first
        self._close_open(timed)
        self.texts = list(self.names)

    def __getitem__(self, kind: str) -> dict[str, np.ndarray]:
        return self.columns[kind]

    def named(self, kind: str) -> list[str]:
        """The name of each event of a kind."""
        return [self.texts[number] for number in self[kind]["name"].tolist()]

    def numbers_of(self, *words: str) -> list[int]:
        """The numbers of the names that contain one of the words."""
        return [number for number, text in enumerate(self.texts) if any(word in text for word in words)]

    def _close_open(self, timed: list[dict]) -> None:
        """Lets annotations without a duration last to the end of the trace."""
        last = max((int(columns["end"].max()) for columns in timed), default=0)
        for kind in ("annotation", "function", "operator"):
            columns = self[kind]
            is_open = columns["is_open"] == 1
            columns["end"][is_open] = last
            self.unclosed += int(is_open.sum()) if kind == "annotation" else 0

    # Decoding

    def _file(self) -> Iterator[bytes]:
        """The bytes of the file, unpacked."""
        with self.path.open("rb") as file:
            if file.read(2) != GZIP:
                file.seek(0)
                yield from iter(lambda: file.read(BLOCK), b"")
                return
            file.seek(0)
            unpacker = zlib.decompressobj(31)
            while packed := unpacker.unconsumed_tail or unpacker.unused_data.lstrip(b"\0") or file.read(1 << 18):
                unpacker = zlib.decompressobj(31) if unpacker.eof else unpacker
                try:
                    yield unpacker.decompress(packed, BLOCK)
                except zlib.error as error:
                    raise CaptureError(f"{self.path}: cannot be unpacked ({error}): copy it again") from error
            if not unpacker.eof:
                raise CaptureError(f"{self.path}: the gzip file is cut off: copy it again")

    def _blocks(self) -> Iterator[list[Event]]:
        """The events, some thousands at a time. What is beside them is put into `facts`."""
        file, text, position = self._file(), b"", 0
        while not (match := EVENTS.search(text)) and not text.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"["):
            if not (more := next(file, b"")):
                raise CaptureError(f"{self.path}: no trace of torch.profiler: no 'traceEvents' in it")
            text += more
        position = match.end() if match else text.index(b"[") + 1
        head, text = text[:position], text[position:]
        done = len(head)
        at_end = False
        while not at_end:
            more = next(file, b"")
            while more and len(more) < BLOCK and (further := next(file, b"")):
                more += further
            text, at_end = text + more, not more
            cut = text.rfind(b"}", 0, max(len(text) - (1 << 16), 0))
            matches = list(BOUNDARY.finditer(text, max(cut, 0))) or list(BOUNDARY.finditer(text))
            if at_end or not matches:
                continue
            end = matches[-1].start() + 1
            events = self._decoded(b"[" + text[:end] + b"]")
            if events is None:
                if len(text) > 8 * BLOCK:
                    raise self._invalid(done, b"[" + text[:end] + b"]")
                continue
            yield events
            text, done = text[matches[-1].end() :], done + matches[-1].end()
        yield from self._tail(head, text, done, match is not None)

    def _tail(self, head: bytes, text: bytes, done: int, is_object: bool) -> Iterator[list[Event]]:
        """The last events, and the facts around all of them."""
        try:
            # Behind the last event, what follows the array is found from the end: "]" and maybe further keys.
            ends = [match.end() for match in re.finditer(rb"\}\s*\]|^\s*\]", text)] or [
                match.end() for match in re.finditer(rb"\]", text)
            ][-1:]
            for end in ends:
                rest = text[end:].strip()
                if is_object:
                    try:
                        facts = msgspec.json.decode(_without_bad_bytes(head + b"]" + rest))
                    except msgspec.DecodeError:
                        continue
                elif rest:
                    continue
                else:
                    facts = {}
                events = self._decoded(b"[" + text[:end])
                if events is None:
                    continue
                self.facts = {key: value for key, value in facts.items() if key != "traceEvents"}
                if self.facts.get("writtenBy"):
                    raise CaptureError(f"{self.path}: a timeline of this program, not a capture")
                yield events
                return
        except RecursionError:
            pass
        raise self._invalid(done, b"[" + text)

    def _decoded(self, text: bytes) -> list[Event] | None:
        """The events of an array, repaired if need be; None if it is no valid JSON."""
        for repair in (None, _without_bad_bytes, lambda raw: _with_escapes(_without_bad_bytes(raw))):
            attempt = repair(text) if repair else text
            try:
                if not attempt.isascii():
                    attempt.decode()  # msgspec does not check what it skips
                events = DECODER.decode(attempt)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            self.repairs += attempt != text
            return events
        return None

    def _invalid(self, done: int, text: bytes) -> CaptureError:
        try:
            DECODER.decode(text)
            reason, place = "it is cut off", done + len(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            reason = str(error)
            at = re.search(r"byte (\d+)", reason)
            place = done + int(at[1]) - 1 if at else done
        return CaptureError(f"{self.path}: invalid JSON after byte {place:,} ({reason}): write or copy it again")

    # Columns

    def _columns(self, kind: str, events: list[Event]) -> dict[str, np.ndarray]:
        """The columns of the events of one kind."""
        start = self._times([event.ts for event in events])
        columns = {
            "start": start,
            "name": np.array([self.names.setdefault(e.name or "", len(self.names)) for e in events], np.int64),
        }
        if kind == "arrow":
            columns |= {"end": start, "thread": self._thread_ids(events), "id": _integers([e.id for e in events])}
            return columns | {"is_begin": np.array([event.ph == "s" for event in events], np.int64)}
        durations = [event.dur for event in events]
        of_host = kind in modules.HOST_KINDS
        length = self._times(durations, kind in DEVICE_KINDS, missing_as=b"-1" if of_host else b"")
        if of_host:  # Kineto writes a negative duration if it did not see the end
            columns["is_open"] = (length == -1000).astype(np.int64)
            length = np.maximum(length, 0) if kind != "operator" else length
        columns["end"] = start + length
        args = [event.args or NO_ARGS for event in events]
        if kind in DEVICE_KINDS:
            device = _integers([a.device if a.device is not None else e.pid for a, e in zip(args, events)])
            stream = [a.original_stream if a.original_stream is not None else a.stream for a in args]
            stream = _integers([s if s is not None else e.tid for s, e in zip(stream, events)])
            columns["stream"] = device << 32 | stream & 0xFFFFFFFF
            columns["node"] = _integers([a.node for a in args])
            columns["graph"] = _integers([a.graph for a in args])
            is_labeled = any(isinstance(event.pid, str) for event in events)
            ranks = [self._rank(event.pid) for event in events] if is_labeled else np.full(len(events), NONE)
            columns["process"] = np.array(ranks, np.int64)
        if kind == "copy":
            words = [a.copy_kind or (e.name.split() + ["", ""])[1] for a, e in zip(args, events)]
            texts = [f"[CUDA memcpy {COPIES.get(str(word), 'Unknown')}]" for word in words]
            columns["name"] = np.array([self.names.setdefault(text, len(self.names)) for text in texts], np.int64)
        elif kind == "fill":
            columns["name"] = np.full(len(events), self.names.setdefault("[CUDA memset]", len(self.names)), np.int64)
        if kind in (*DEVICE_KINDS, "call"):
            # Some older traces write the correlation id under the key of the external id.
            external = [a.external if a.external is not None else a.external_old for a in args]
            columns["external"] = _integers(external)
            columns["correlation"] = _integers(
                [a.correlation if a.correlation is not None else x for a, x in zip(args, external)]
            )
        if kind not in DEVICE_KINDS:
            columns["thread"] = self._thread_ids(events)
            columns["order"] = _integers([a.external if a.external is not None else 0 for a in args])
        if kind == "operator":
            columns["sequence"] = _integers([a.sequence for a in args])
            columns["forward_thread"] = np.maximum(_integers([a.forward_thread for a in args]), 0)
            shapes = [bytes(a.shapes) for a in args]
            columns["shapes"] = np.array([self.shapes.setdefault(text, len(self.shapes)) for text in shapes], np.int64)
        return columns

    def _times(self, times: list, of_device: bool = False, missing_as: bytes = b"") -> np.ndarray:
        """Nanoseconds from texts in microseconds."""
        joined = b" ".join(times).replace(b'"', b"") + b" " if times else b""
        if joined and (joined.startswith(b" ") or b"  " in joined):
            if not missing_as:
                raise CaptureError(f"{self.path}: an event of a GPU, or a call, has no time or no duration")
            joined = b" ".join([bytes(time) or missing_as for time in times]).replace(b'"', b"") + b" "
        if WHOLE.fullmatch(joined):
            return np.fromstring(joined, np.int64, sep=" ") * 1000
        if of_device and self.whole_microseconds:
            self.whole_microseconds = not re.search(rb"\.0*[1-9]", joined)
        if THREE_DECIMALS.fullmatch(joined):
            return np.fromstring(joined.replace(b".", b""), np.int64, sep=" ")
        try:
            values = [_nanoseconds(text) for text in joined.decode().split()]
            if max(map(abs, values)) >= NEVER:
                raise ValueError("a time of more than 73 years")
        except (InvalidOperation, ValueError, OverflowError) as error:
            raise CaptureError(f"{self.path}: a time of an event is no time ({error})") from error
        return np.array(values, np.int64)

    def _thread_ids(self, events: list[Event]) -> np.ndarray:
        keys = [(event.pid, event.tid) for event in events]
        try:
            new = set(keys) - self._threads.keys()
        except TypeError:  # ids that are lists or objects
            keys = [(str(pid), str(tid)) for pid, tid in keys]
            new = set(keys) - self._threads.keys()
        for pid, tid in new:
            number = self._threads[pid, tid] = self._number(pid) << 24 | self._number(tid)
            if label := _label(pid):
                self.labels[number & ~THREAD_BITS] = label
        return np.array([self._threads[key] for key in keys], np.int64)

    def _number(self, value: Any) -> int:
        """The number of a process or thread; of what is none, a substitute from the highest down."""
        if isinstance(value, int) and 0 <= value < THREAD_BITS - 0xFFFF:
            return value
        return THREAD_BITS - self._substitutes.setdefault(str(value), len(self._substitutes))

    def _rank(self, pid: Any) -> int:
        """A number for the label of a rank in a device's pid, as profile_merger of SGLang writes it; else NONE."""
        label = _label(pid)
        return NONE if label is None else self.names.setdefault(label, len(self.names))

    # Meaning

    def device_work(self) -> tuple[Activities, Calls]:
        """The activities of the GPU and the calls. Raises CaptureError if nothing ran on one."""
        parts = [self[kind] for kind in DEVICE_KINDS]
        counts = [len(part["start"]) for part in parts]
        if not sum(counts):
            launches = sum("Launch" in name for name in self.named("call"))
            saw = f"{launches:,} calls that launch kernels" if launches else "nothing of a GPU"
            raise CaptureError(f"{self.path}: a trace without kernels ({saw}): record with ProfilerActivity.CUDA")
        joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        kind = np.repeat(np.arange(3, dtype=np.int8), counts)
        for words, number in ((("__amd_rocclr_copyBuffer",), 1), (("__amd_rocclr_fillBuffer",), 2)):
            kind[np.isin(joined["name"], self.numbers_of(*words))] = number  # ROCm 7.1 calls them kernels
        columns = self["call"]
        columns = {name: column[columns["correlation"] > 0] for name, column in columns.items()}
        columns, joined["correlation"] = self._with_operators(columns, joined)
        process = self._processes(columns, joined)
        threads, thread = np.unique(columns["thread"], return_inverse=True)
        names = {int(number): self.texts[number] for number in np.unique(columns["name"])}
        calls = Calls(columns["start"], thread.reshape(-1), threads, columns["correlation"], columns["name"], names)
        calls.end, calls.failed = columns["end"], np.zeros(len(columns["end"]), bool)
        if (joined["end"] < joined["start"]).any() or (columns["end"] < columns["start"]).any():
            raise CaptureError(f"{self.path}: an activity or a call ends before it starts: damaged, write it again")
        used, name = np.unique(joined["name"], return_inverse=True)
        activities = Activities(
            kind, name.reshape(-1).astype(np.int32), [self.texts[number] for number in used.tolist()], joined["start"],
            joined["end"], joined["correlation"], process, joined["stream"], joined["node"],
        )  # fmt: skip
        return activities, calls

    def _with_operators(self, calls: dict, work: dict) -> tuple[dict, np.ndarray]:
        """The calls, and one more for each operator that a kernel without a correlation id names: RCCL's have 0."""
        correlation, operators = work["correlation"].copy(), self["operator"]
        lost = np.flatnonzero((correlation <= 0) & (work["external"] > 0))
        known, first = np.unique(operators["order"], return_index=True)
        if not len(lost) or not len(known):
            return calls, correlation
        place = np.minimum(np.searchsorted(known, work["external"][lost]), len(known) - 1)
        found = known[place] == work["external"][lost]
        lost, rows = lost[found], first[place[found]]
        rows, index = np.unique(rows, return_inverse=True)
        new = np.arange(len(rows)) + 1 + max(int(calls["correlation"].max(initial=0)), int(correlation.max(initial=0)))
        correlation[lost] = new[index.reshape(-1)]
        more = {name: operators[name][rows] for name in ("start", "end", "thread", "name")}
        self.texts.append("LaunchKernel by an operator")
        more["name"] = np.full(len(rows), len(self.texts) - 1)
        more |= {"correlation": new, "external": operators["order"][rows], "order": operators["order"][rows]}
        return {name: np.concatenate([column, more[name]]) for name, column in calls.items()}, correlation

    def _processes(self, calls: dict, work: dict) -> np.ndarray:
        """The process of each activity: that of its call. Raises CaptureError if the file holds several ranks whose
        correlation ids cannot be told apart."""
        process = calls["thread"] & ~THREAD_BITS
        of_host = [self[kind]["thread"] for kind in ("call", "operator", "annotation") if len(self[kind]["thread"])]
        usual = int(of_host[0][0]) & ~THREAD_BITS if of_host else 0
        processes = np.unique(process)
        pairs = np.unique(np.stack([calls["correlation"], process]), axis=1)
        result = np.full(len(work["start"]), usual, np.int64)
        if self.labels:
            by_label = {self.names[label]: number for number, label in self.labels.items() if label in self.names}
            for label in np.unique(work["process"]).tolist():
                result[work["process"] == label] = by_label.get(label, usual)
            if (work["process"] != NONE).all():
                return result
        if len(processes) > 1 and len(np.unique(pairs[0])) < pairs.shape[1]:
            raise CaptureError(
                f"{self.path}: the traces of {len(processes)} processes are merged in it, and their correlation ids"
                " collide, so that nobody knows which launched what: give the trace of each rank"
            )
        if pairs.shape[1]:
            place = np.minimum(np.searchsorted(pairs[0], work["correlation"]), pairs.shape[1] - 1)
            result = np.where(pairs[0][place] == work["correlation"], pairs[1][place], usual)
        return result

    def graph_nodes(self, activities: Activities) -> Nodes:
        """The creations of the nodes of replayed graphs, as far as they are certain; sets activities.node.

        Kineto records no creation. But if the activities of a graph run one after another, their order is that of their
        capture, so the n-th activity of a replay belongs to the n-th call. With node ids (PyTorch 2.12), their order
        is that of the capture, also where branches run at once and loops repeat. A node has the number of its call.
        """
        node_ids, activities.node = activities.node, np.full(len(activities), NONE, np.int64)
        calls, created = self["call"], [np.empty(0, np.int64)]
        captures = self._captures(activities)
        launch_rows = np.flatnonzero(np.isin(calls["name"], self.numbers_of("GraphLaunch"))) if captures else []
        launched = (
            dict(zip(calls["correlation"][launch_rows].tolist(), calls["start"][launch_rows].tolist()))
            if captures
            else {}
        )
        members = np.flatnonzero(
            np.isin(activities.correlation, list(launched) or [NEVER]) & (activities.correlation > 0)
        )
        members = members[np.lexsort((activities.start[members], activities.correlation[members]))]
        first = np.flatnonzero(np.diff(activities.correlation[members], prepend=NONE))
        replays: dict[int, list] = {}  # by capture
        for rows in np.split(members, first[1:]) if len(members) else []:
            order = (
                np.unique(node_ids[rows], return_inverse=True)[1].reshape(-1) if (node_ids[rows] > 0).all() else None
            )
            distinct = rows if order is None else rows[np.unique(order, return_index=True)[1]]
            kinds = activities.kind[distinct].tobytes()
            time = launched[int(activities.correlation[rows[0]])]
            possible = [
                number for number, (calls_of, known, end) in enumerate(captures) if known == kinds and end <= time
            ]
            if len(possible) == 1:
                serial = (activities.end[rows[:-1]] - activities.start[rows[1:]] < MAX_OVERLAP).all()
                is_certain = order is not None or bool(serial)
                place = np.arange(len(rows)) if order is None else order
                replays.setdefault(possible[0], []).append(
                    (rows, place, is_certain, activities.name[distinct].tobytes())
                )
        for number, ran in replays.items():
            if all(is_certain and names == ran[0][3] for _, _, is_certain, names in ran):
                created.append(captures[number][0])
                for rows, place, _, _ in ran:
                    activities.node[rows] = captures[number][0][place]
        rows = np.concatenate(created)
        return Nodes(calls["start"][rows], calls["thread"][rows], rows, np.full(len(rows), NONE))

    def _captures(self, activities: Activities) -> list[tuple[np.ndarray, bytes, int]]:
        """Of each stream capture: the calls that created nodes, their kinds, and its end."""
        calls, captures = self["call"], []
        rows_named = lambda *words: np.flatnonzero(np.isin(calls["name"], self.numbers_of(*words)))  # noqa: E731
        begins, ends = rows_named("StreamBeginCapture"), rows_named("StreamEndCapture")
        if not len(begins):
            return []
        kinds = np.full(len(calls["start"]), NONE, np.int8)
        for number, kind in enumerate(DEVICE_KINDS):
            kinds[rows_named(*CREATING[kind])] = number
        creating = np.flatnonzero((kinds != NONE) & ~np.isin(calls["correlation"], activities.correlation))
        creating = creating[np.argsort(calls["start"][creating], kind="stable")]
        for row in begins.tolist():
            begin = calls["end"][row]
            later = ends[(calls["thread"][ends] == calls["thread"][row]) & (calls["start"][ends] > begin)]
            if len(later):
                end = int(calls["start"][later].min())
                inside = creating[(calls["start"][creating] > begin) & (calls["start"][creating] < end)]
                captures.append((inside, kinds[inside].tobytes(), end))
        return captures


def _nanoseconds(text: str) -> int:
    whole, _, decimals = text.partition(".")
    if len(decimals) <= 3 and whole.isdecimal() and len(whole) < 16:
        return int(whole + decimals.ljust(3, "0"))
    return round(Decimal(text).scaleb(3)) if len(text) < 40 else NEVER


def _without_bad_bytes(text: bytes) -> bytes:
    """The JSON with marks for bytes that are not UTF-8, and null for bare numbers that JSON lacks."""
    return BARE.sub(b"null", text.decode("utf-8", "replace").encode())


def _with_escapes(text: bytes) -> bytes:
    """The JSON with escaped quotes and backslashes in names, which Kineto does not escape."""
    return NAME.sub(lambda match: match[1] + ESCAPE.sub(lambda bad: b"\\" + bad[0], match[2]) + match[3], text)


def _label(pid: Any) -> str | None:
    match = re.match(r"\[([\w-]+)\]", pid) if isinstance(pid, str) else None
    return match[1] if match else None


def _integers(values: list) -> np.ndarray:
    """The values as integers, NONE for what is none. Integers in quotes, and floats such as 1.0, are integers, too."""
    values = [NONE if value is None else value for value in values] if None in values else values
    if set(map(type, values)) <= {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    try:
        if type(value) is int:
            number = value
        elif isinstance(value, str):
            number = int(value, 0) if "." not in value else int(float(value))
        else:
            number = int(value) if value is not None and int(value) == value else NONE
    except (TypeError, ValueError, OverflowError):
        return NONE
    return number if -(1 << 63) <= number < 1 << 63 else NONE
