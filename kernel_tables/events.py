"""The events of a trace of torch.profiler: JSON, gzipped or not, decoded by msgspec some megabytes at a time.

A block that is no valid JSON is repaired where writers are known to be careless: bytes that are not UTF-8, control
characters, bare inf and nan, unescaped quotes in names.
"""

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from kernel_tables.capture import NONE
from kernel_tables.errors import TraceError, impossible

BLOCK, GZIP = 2 << 20, b"\x1f\x8b"
BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")  # between two events, or within one
ADVICE = "give the JSON that torch.profiler wrote (export_chrome_trace)"


class Args(msgspec.Struct, gc=False):
    """What is read of the details of an event."""

    correlation: Any = NONE
    external: Any = msgspec.field(name="External id", default=NONE)
    external_old: Any = msgspec.field(name="external id", default=NONE)
    device: Any = NONE
    stream: Any = NONE
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
    elements_in: Any = msgspec.field(name="In msg nelems", default=None)
    elements_out: Any = msgspec.field(name="Out msg nelems", default=None)
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
    dur: float | str | None = None
    args: Args | None = None
    id: Any = NONE


DECODER = msgspec.json.Decoder(list[Event])


class EventFile:
    """The events of a file, as an iterator of lists of some thousands.

    Afterwards, `facts` holds the JSON object around them, `repairs` how many parts were repaired, and `damage` where
    and why the JSON is invalid, "" if it is not. TraceError for a file without events.
    """

    def __init__(self, path: Path):
        self.path, self.facts, self.repairs, self.damage = path, {}, 0, ""

    def __iter__(self) -> Iterator[list[Event]]:
        chunks = self._unpacked()
        head, text = self._head(chunks)
        done, at_end = len(head), False  # bytes of the file before the text
        while not at_end and not self.damage:
            more = next(chunks, b"")
            text, at_end = text + more, not more
            cuts = [*BOUNDARY.finditer(text, max(len(text) - (1 << 16), 0))] or [*BOUNDARY.finditer(text)]
            if at_end or not cuts:
                continue
            try:
                yield self._decoded(b"[" + text[: cuts[-1].start() + 1] + b"]")[0]
            except (ValueError, RecursionError) as error:
                if "truncated" not in str(error) or len(text) > (64 << 20):
                    yield self._up_to_damage(text, done, str(error))
                    return
                continue  # the boundary was within an event
            text, done = text[cuts[-1].end() :], done + cuts[-1].end()
        try:
            events, rest = self._decoded(b"[" + text, is_last=True)
            try:
                around, repairs = self._without_bad_bytes(head + b"]" + rest)
                self.facts, self.repairs = msgspec.json.decode(around), self.repairs + repairs
            except ValueError as error:
                raise ValueError(f"invalid after the events (byte {len(text) - len(rest) + 1})") from error
        except (ValueError, RecursionError) as error:
            events = self._up_to_damage(text, done, str(error))
        self.facts = self.facts if isinstance(self.facts, dict) else {}
        yield events

    def _unpacked(self) -> Iterator[bytes]:
        """The file in parts of at least BLOCK bytes but the last one; a gzip file that is damaged sets `damage`."""
        with self.path.open("rb") as file:
            if file.read(2) != GZIP:
                file.seek(0)
                yield from iter(lambda: file.read(BLOCK), b"")
                return
            file.seek(0)
            unpacker, parts = zlib.decompressobj(31), []
            # A gzip file may have several members, with NUL bytes between them.
            while packed := unpacker.unconsumed_tail or unpacker.unused_data.lstrip(b"\0") or file.read(1 << 18):
                unpacker = zlib.decompressobj(31) if unpacker.eof else unpacker
                try:
                    parts.append(unpacker.decompress(packed, BLOCK))
                except zlib.error as error:
                    self.damage = f"it cannot be unpacked ({error}): the gzip file is damaged"
                    break
                if sum(map(len, parts)) >= BLOCK:
                    yield b"".join(parts)
                    parts.clear()
            if not unpacker.eof and not self.damage:
                self.damage = "it cannot be unpacked to its end: the gzip file is cut off"
            yield b"".join(parts)

    def _head(self, chunks: Iterator[bytes]) -> tuple[bytes, bytes]:
        """What is before the first event, and what was read after it. TraceError if there is no list of events."""
        text = next(chunks, b"")
        begin = text.removeprefix(b"\xef\xbb\xbf").lstrip()
        if not begin.startswith((b"{", b"[")):
            found = f"no JSON (it begins with {begin[:8]!r})" if begin else "empty"
            raise TraceError(f"{self.path}: {self.damage or found}; {ADVICE}")
        begin = len(text) - len(begin)
        if text[begin : begin + 1] == b"[":
            return text[begin : begin + 1], text[begin + 1 :]
        while not (match := re.search(rb'"traceEvents"\s*:\s*\[', text)):
            if not (more := next(chunks, b"")):
                try:
                    keys = ", ".join(repr(key[:40]) for key in list(msgspec.json.decode(text[begin:]))[:6]) or "none"
                except (ValueError, RecursionError) as error:
                    raise self.invalid(f"invalid JSON: {error}") from error
                raise TraceError(f"{self.path}: JSON without 'traceEvents' (its keys: {keys}); {ADVICE}")
            text += more
        return text[begin : match.end()], text[match.end() :]

    def invalid(self, damage: str) -> TraceError:
        """The error for invalid JSON."""
        advice = "write or copy the trace again, or read what it holds before that: --up-to-damage"
        return impossible(self.path, "invalid_json", f"{damage}; {advice}")

    def _decoded(self, text: bytes, is_last: bool = False) -> tuple[list[Event], bytes]:
        """The events of an array, repaired if need be, and if it is the last, what follows it. ValueError or
        RecursionError if it is no valid JSON."""
        first, repairs = None, 0
        for repair in (None, self._without_bad_bytes, self._with_escapes):
            if repair:
                text, more = repair(text)
                repairs += more
            end = len(text)
            try:
                if not text.isascii():
                    text.decode()  # msgspec does not check what it skips
                events = DECODER.decode(text)
            except (ValueError, RecursionError) as error:
                first = first or error
                found = is_last and re.search(r"trailing characters \(byte (\d+)\)", str(error))
                if not found:
                    continue
                end = text.rindex(b"]", 0, int(found[1])) + 1
                events = DECODER.decode(text[:end])
            self.repairs += repairs
            return events, text[end:]
        raise first

    def _up_to_damage(self, text: bytes, done: int, reason: str) -> list[Event]:
        """The events before the damage; sets `damage`. The text begins after `done` bytes of the file."""
        ends = [0, *(match.start() + 1 for match in re.finditer(rb"\}(?=\s*,?\s*\{)", text)), len(text)]
        whole, broken, events = 0, len(ends), []
        while broken - whole > 1:
            middle = (whole + broken) // 2
            try:
                events, whole = self._decoded(b"[" + text[: ends[middle]] + b"]")[0], middle
            except (ValueError, RecursionError):
                broken = middle
        if not self.damage:
            found = re.search(r"\(byte (\d+)\)", reason)
            place = done + (int(found[1]) - 1 if found else ends[whole])
            self.damage = f"invalid JSON at byte {place} ({reason.partition(' (byte')[0]})"
        return events

    @staticmethod
    def _without_bad_bytes(text: bytes) -> tuple[bytes, int]:
        """The JSON with marks for bytes that are not UTF-8, null for bare numbers that JSON lacks, and spaces for
        control characters; and how many there were."""
        marked = text.decode("utf-8", "replace")
        bad_bytes = marked.count("\ufffd") - text.count(b"\xef\xbf\xbd")
        text, controls = re.subn(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", b" ", marked.encode())
        bare = rb"(?<=[:,\[\s])-?(?:[Nn]a[Nn]|[Ii]nf(?:inity)?)(?=\s*[,}\]])"
        text, numbers = re.subn(bare, b"null", text)
        return text, bad_bytes + controls + numbers

    @staticmethod
    def _with_escapes(text: bytes) -> tuple[bytes, int]:
        """The JSON with escapes in names, where Kineto writes none, and how many there were."""
        escape = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})|(?<!\\)"')
        names = rb'("name": ")([^\n]*?)(", "(?:pid|ts|cat|tid)":)'
        counts = []

        def escaped(match: re.Match) -> bytes:
            name, count = escape.subn(lambda bad: b"\\" + bad[0], match[2])
            counts.append(count)
            return match[1] + name + match[3]

        return re.sub(names, escaped, text), sum(counts)
