"""The events of a trace of torch.profiler: JSON, gzipped or not, decoded by msgspec some megabytes at a time.

A block that is no valid JSON is repaired where writers are known to be careless: bytes that are not UTF-8, control
characters, bare inf and nan, unescaped quotes in names. Events that are still invalid are left out, and counted.
"""

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kernel_tables.capture import NONE
from kernel_tables.errors import TraceError, impossible

BLOCK, GZIP = 2 << 20, b"\x1f\x8b"
HEAD = re.compile(
    rb'(?:\xef\xbb\xbf)?\s*(?:\[|\{.*?"traceEvents"\s*:\s*\[)', re.DOTALL
)  # what is before the first event
ADVICE = "give the JSON that torch.profiler wrote (export_chrome_trace)"


def is_cut(error: ValueError) -> bool:
    """Whether the text of invalid JSON may have been cut in an event, or after the list of events."""
    return "truncated" in str(error) or "trailing" in str(error)


class Args(msgspec.Struct, gc=False):
    """What is read of the details of an event."""

    correlation: Any = NONE
    external: Any = msgspec.field(name="External id", default=NONE)
    device: Any = NONE
    stream: Any = NONE
    graph: Any = msgspec.field(name="graph id", default=NONE)
    node: Any = msgspec.field(name="graph node id", default=NONE)
    grid: msgspec.Raw = msgspec.Raw()
    block: msgspec.Raw = msgspec.Raw()
    bytes: Any = NONE
    copy_kind: Any = msgspec.field(name="copy kind", default=None)
    source: Any = msgspec.field(name="src kind", default=None)
    target: Any = msgspec.field(name="dst kind", default=None)
    sequence: Any = msgspec.field(name="Sequence number", default=NONE)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=NONE)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default=msgspec.Raw())
    collective: Any = msgspec.field(name="Collective name", default=None)
    elements_in: Any = msgspec.field(name="In msg nelems", default=NONE)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=NONE)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    group_ranks: Any = msgspec.field(name="Process Group Ranks", default=None)


class Event(msgspec.Struct, gc=False):
    """An event; `ts` and `dur` are microseconds, `ts` as it is written, with more digits than a float has."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    pid: Any = NONE
    tid: Any = NONE
    ts: msgspec.Raw = msgspec.Raw()
    dur: float | None = None
    args: Args | None = None
    id: Any = NONE


class Facts(msgspec.Struct, rename="camel"):
    """What is read of the object around the events."""

    trace_events: list[Event] = []
    device_properties: list[dict] | None = None
    base_time_nanoseconds: int | None = None
    distributed_info: dict | None = None
    with_stack: Any = msgspec.field(name="with_stack", default=None)
    written_by: Any = None


class EventFile:
    """The events of a file, as an iterator of lists of some thousands.

    Afterwards, `facts` holds the JSON object around them, `repairs` how many parts were repaired, `bad_events` how many
    were left out since they are none, and `damage` where and why the JSON is invalid, "" if it is not. TraceError for a
    file without events.
    """

    def __init__(self, path: Path):
        self.path, self.facts, self.repairs, self.damage, self.bad_events = path, Facts(), 0, "", 0
        self._decoder = msgspec.json.Decoder(Facts | list[Event], strict=False)  # so that numbers may be in quotes

    def __iter__(self) -> Iterator[list[Event]]:
        chunks, boundary = self._unpacked(), re.compile(rb"\}\s*,\s*(?=\{)")  # between two events, or within one
        head, text = self._head(chunks)
        done = len(head)  # bytes of the file before the text
        for more in chunks:
            text += more
            cuts = [*boundary.finditer(text, max(len(text) - (1 << 16), 0))] or [*boundary.finditer(text)]
            try:
                if cuts:
                    yield self._decoded(b"[" + text[: cuts[-1].start() + 1] + b"]", is_last=len(text) > 64 << 20)
                    text, done = text[cuts[-1].end() :], done + cuts[-1].end()
            except ValueError as error:
                if not is_cut(error):
                    yield self._up_to_damage(b"[", text, done, str(error))
                    return
        try:
            last = self._decoded(head + text)
            self.facts = last if isinstance(last, Facts) else self.facts
            yield last.trace_events if isinstance(last, Facts) else last
        except ValueError as error:
            yield self._up_to_damage(head, text, done, str(error))

    def _unpacked(self) -> Iterator[bytes]:
        """The file in parts of at least BLOCK bytes but the last one; a gzip file that is damaged sets `damage`."""
        parts: list[bytes] = []
        with self.path.open("rb") as packed:
            file = gzip.GzipFile(fileobj=packed) if packed.peek(2).startswith(GZIP) else packed
            try:
                while part := file.read1(BLOCK):
                    parts.append(part)
                    if sum(map(len, parts)) >= BLOCK:
                        yield b"".join(parts)
                        parts.clear()
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                self.damage = f"it cannot be unpacked ({error}): the gzip file is damaged or cut off"
            yield b"".join(parts)

    def _head(self, chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
        """What is before the first event, and what was read after it. TraceError if there is no list of events."""
        text = b""
        for more in chunks:
            text += more
            if head := HEAD.match(text):
                return head[0].removeprefix(b"\xef\xbb\xbf"), text[head.end() :]
        raise TraceError(f"{self.path}: {self.damage or 'no JSON with traceEvents'}; {ADVICE}")

    def invalid(self, damage: str) -> TraceError:
        """The error for invalid JSON."""
        advice = "write or copy the trace again, or read what it holds before that: --up-to-damage"
        return impossible(self.path, "invalid_json", f"{damage}; {advice}")

    def _decoded(self, text: bytes, is_last: bool = True) -> Facts | list[Event]:
        """The events of an array or object, repaired if need be. ValueError if it is no valid JSON; if it may only be
        cut off, it is repaired if it `is_last`."""
        first, repairs = None, 0
        for repair in (None, self._without_bad_bytes, self._with_escapes, self._without_bad_events):
            try:
                if repair:
                    text, count = repair(text)
                    repairs += count
                if not text.isascii():
                    text.decode()  # msgspec does not check what it skips
                try:
                    decoded = self._decoder.decode(text)
                except msgspec.ValidationError:  # valid JSON, in which something is not of its type
                    decoded = self._one_by_one(text)
            except ValueError as error:
                first = first or error
                if is_cut(first) and not is_last:
                    break
                continue
            self.repairs += repairs
            return decoded
        raise first

    def _one_by_one(self, text: bytes) -> Facts | list[Event]:
        """The events and facts, without those that are not what they should be."""

        def decoded(raw: msgspec.Raw, type_: Any) -> Any:
            try:
                return msgspec.json.decode(raw, type=type_, strict=False)
            except msgspec.ValidationError:
                return None

        whole = msgspec.json.decode(text, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
        raws = whole if isinstance(whole, list) else decoded(whole.pop("traceEvents"), list[msgspec.Raw]) or []
        events = [event for raw in raws if (event := decoded(raw, Event)) is not None]
        self.bad_events += len(raws) - len(events)
        if whole is raws:
            return events
        fields = {field.encode_name: field for field in msgspec.structs.fields(Facts)}
        found = {fields[key].name: decoded(raw, fields[key].type) for key, raw in whole.items() if key in fields}
        return Facts(events, **found)

    def _up_to_damage(self, head: bytes, text: bytes, done: int, reason: str) -> list[Event]:
        """The events that are valid; sets `damage`. The text begins after `done` bytes of the file."""
        found = re.search(r"\(byte (\d+)\)", reason)
        place = done + (int(found[1]) - len(head) if found else len(text))
        self.damage = self.damage or f"invalid JSON at byte {place} ({reason.partition(' (byte')[0]})"
        return self._decoded(b"[" + text[: text.rfind(b"}") + 1] + b"]")

    @staticmethod
    def _without_bad_bytes(text: bytes) -> tuple[bytes, int]:
        """The JSON with marks for bytes that are not UTF-8, null for bare numbers that JSON lacks, and spaces for
        control characters; and how many there were."""
        marked = text.decode("utf-8", "replace").encode()
        bad_bytes = marked.count(b"\xef\xbf\xbd") - text.count(b"\xef\xbf\xbd")
        text, controls = re.subn(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", b" ", marked)
        bare = rb"(?<=[:,\[\s])-?(?:[Nn]a[Nn]|[Ii]nf(?:inity)?)(?=\s*[,}\]])"
        text, numbers = re.subn(bare, b"null", text)
        return text, bad_bytes + controls + numbers

    @staticmethod
    def _with_escapes(text: bytes) -> tuple[bytes, int]:
        """The JSON with escapes in names, where Kineto writes none, and how many there were."""
        escape = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})|(?<!\\)"')
        names = rb'("name": ")([^\n]*?)(", "(?:pid|ts|cat|tid)":)'
        escaped = re.sub(names, lambda match: match[1] + escape.sub(rb"\\\g<0>", match[2]) + match[3], text)
        return escaped, len(escaped) - len(text)

    def _without_bad_events(self, text: bytes) -> tuple[bytes, int]:
        """The JSON without events that are invalid, which are counted; and 1 if only commas were. ValueError if the
        list of events has no end."""

        def is_valid(text: bytes) -> bool:
            try:
                return bool(msgspec.json.decode(text))
            except ValueError:
                return False

        head = HEAD.match(text)[0]
        ends = (end.end() for end in re.finditer(rb'\}\s*(?=\]\s*(?:,\s*"|\}|$))', text))
        end = next((end for end in ends if text[end:] == b"]" or is_valid(head + text[end:])), None)
        if end is None:
            raise ValueError("no end of the list of events")
        found = re.split(rb"(?<=\})\s*,?\s*(?=\{)", text[len(head) : end])
        events = [event for event in found if is_valid(event)]
        self.bad_events += len(found) - len(events)
        return head + b",".join(events) + text[end:], int(len(events) == len(found))
