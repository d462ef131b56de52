"""The events of a trace of torch.profiler: JSON, gzipped or not, decoded by msgspec some megabytes at a time.

In invalid JSON, bytes that are no text, control characters, bare inf and nan are replaced. From the first event on that
is still invalid, events are decoded one by one, and such are left out. Both are counted.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kernel_tables.capture import NONE
from kernel_tables.errors import ImpossibleCapture, TraceError

BLOCK, GZIP = 2 << 20, b"\x1f\x8b"
ADVICE = "give the JSON that torch.profiler wrote (export_chrome_trace)"


class Args(msgspec.Struct, gc=False):
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


class Facts(msgspec.Struct, rename="camel"):
    trace_events: list[Event] = []
    device_properties: Any = None
    base_time_nanoseconds: Any = None
    distributed_info: Any = None
    with_stack: Any = msgspec.field(name="with_stack", default=None)
    written_by: Any = None


class EventFile:
    """The events of a file, as an iterator of lists of some thousands.

    Afterwards, `facts` holds the JSON object around them, `repairs` counts what was replaced, and `bad_events` what was
    left out. Raises TraceError for a file without events, ImpossibleCapture for one that is cut off."""

    def __init__(self, path: Path):
        self.path, self.facts, self.repairs, self.bad_events = path, Facts(), 0, 0
        self._decoder = msgspec.json.Decoder(Facts | list[Event], strict=False)  # so that numbers may be in quotes

    def __iter__(self) -> Iterator[list[Event]]:
        chunks, boundary = self._unpacked(), re.compile(rb'\}\s*,\s*(?=\{\s*")')  # mostly between two events
        head, text = self._head(chunks)
        for more in chunks:
            text += more
            ends = [*boundary.finditer(text, max(len(text) - (1 << 16), 0))] or [*boundary.finditer(text)]
            if ends:
                try:
                    events = self._decoded(b"[" + text[: ends[-1].start() + 1] + b"]")
                except ValueError:
                    text += b"".join(chunks)
                    break
                yield events
                text = text[ends[-1].end() :]
        try:
            last = self._decoded(head + text)
        except ValueError:
            yield from self._one_by_one(head, text)
        else:
            self.facts = last if isinstance(last, Facts) else self.facts
            yield last.trace_events if isinstance(last, Facts) else last

    def _unpacked(self) -> Iterator[bytes]:
        """The file in parts of BLOCK bytes, the last one in less."""
        with self.path.open("rb") as packed:
            file = gzip.GzipFile(fileobj=packed) if packed.peek(2).startswith(GZIP) else packed
            try:
                while part := file.read(BLOCK):
                    yield part
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise self._invalid(f"it cannot be unpacked ({error}): the gzip file is damaged or cut off") from error

    def _head(self, chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
        """What is before the first event, and what was read after it. TraceError if there is no list of events."""
        head, text = re.compile(rb'(?:\xef\xbb\xbf)?\s*(?:\[|\{.*?"traceEvents"\s*:\s*\[)', re.DOTALL), b""
        for more in chunks:
            text += more
            if found := head.match(text):
                return found[0].removeprefix(b"\xef\xbb\xbf"), text[found.end() :]
        raise TraceError(f"{self.path}: no JSON with traceEvents; {ADVICE}")

    def _invalid(self, fact: str) -> TraceError:
        return ImpossibleCapture(self.path, "invalid_json", f"{fact}; write or copy the trace again")

    def _decoded(self, text: bytes) -> Facts | list[Event]:
        try:
            return self._decoder.decode(text)
        except ValueError:
            replaced, count = _replaced(text)
            decoded = self._decoder.decode(replaced)
            self.repairs += count
            return decoded

    def _one_by_one(self, head: bytes, text: bytes) -> Iterator[list[Event]]:
        """The events of a text that is invalid somewhere; sets `facts`."""
        decoder = json.JSONDecoder(strict=False, parse_float=str)
        end_of_event = re.compile(r'(?<=\})\s*(?=,?\s*\{|\]\s*(?:,\s*"|\}|$))')
        (head, _), (text, count), place, events = _replaced(head), _replaced(text), 0, []
        self.repairs += count
        while (place := re.compile(r"[\s,]*").match(text, place).end()) < len(text) and text[place] != "]":
            try:
                event, place = decoder.raw_decode(text, place)
                events.append(msgspec.json.decode(json.dumps(event), type=Event, strict=False))
            except msgspec.MsgspecError:  # no event
                self.bad_events += 1
            except (ValueError, RecursionError):
                self.bad_events += 1
                end = end_of_event.search(text, place + 1)
                place = end.end() if end else len(text)
            if len(events) == 10_000:
                yield events
                events = []
        try:
            around = decoder.decode(head + text[place:])
        except ValueError as error:
            raise self._invalid(f"invalid JSON: the file is cut off or damaged ({error})") from error
        if isinstance(around, dict):
            self.facts = msgspec.convert(around | {"traceEvents": []}, Facts)
        yield events


def _replaced(text: bytes) -> tuple[str, int]:
    """The text with marks for bytes that are no text and control characters, null for inf and nan; and their number."""
    marked, marks = re.subn("[\ufffd\x00-\x08\x0b\x0c\x0e-\x1f]", "\ufffd", text.decode(errors="replace"))
    bare = r"(?<=[:,\[\s])-?(?:[Nn]a[Nn]|[Ii]nf(?:inity)?)(?=\s*[,}\]])"
    replaced, numbers = re.subn(bare, "null", marked)
    return replaced, marks + numbers
