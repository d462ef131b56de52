"""The events of a trace's JSON, a few megabytes at a time, and where the JSON is invalid.

A block should end between two events. Its end is guessed, and the block decoded. If that fails, since the guess was
inside an event or the JSON is damaged, the events are decoded one by one.
"""

import json
import re
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kernel_tables.kineto.events import SLOW_DECODER, Event, decoded_block, event_of

BLOCK_BYTES, PACKED_BYTES = 4 << 20, 1 << 18  # that are read at a time, the second from a gzip file
MAX_EVENT_BYTES = 16 << 20  # if more bytes are no valid event, the JSON is damaged, not cut by the end of a block
GZIP_MAGIC, GZIP_WINDOW = b"\x1f\x8b", 31  # 31 makes zlib expect the header of a gzip file
EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
EVENT_BOUNDARY = re.compile(rb"\}\s*,\s*\{")
SPACE = re.compile(r"[ \t\n\r]*")
END_BYTES = 1 << 16  # at the end of a block, where the end of the last complete event is searched first
MAX_NAMED_KEYS = 6


class NotATrace(ValueError):
    """The file is JSON without events, or no JSON at all."""


class InvalidJson(ValueError):
    """The JSON is invalid from some position on; all events before that have been yielded."""


def file_blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in blocks, unpacked if it is gzipped. InvalidJson if it cannot be unpacked further."""
    with path.open("rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            file.seek(0)
            yield from iter(partial(file.read, BLOCK_BYTES), b"")
            return
        file.seek(0)
        unpacker = zlib.decompressobj(GZIP_WINDOW)
        # A gzip file may have several members, with NUL bytes between them. First comes what is left of this member,
        # then what was read of the next one, then more of the file.
        while packed := unpacker.unconsumed_tail or unpacker.unused_data.lstrip(b"\0") or file.read(PACKED_BYTES):
            if unpacker.eof:  # of a member; another one follows
                unpacker = zlib.decompressobj(GZIP_WINDOW)
            try:
                yield unpacker.decompress(packed, BLOCK_BYTES)
            except zlib.error as error:
                raise InvalidJson(f"it cannot be unpacked ({error}): the gzip file is damaged") from error
        if not unpacker.eof:
            raise InvalidJson("it cannot be unpacked to its end: the gzip file is cut off")


class EventStream:
    """The blocks of events of a file, as an iterator; afterwards `facts` holds its JSON object without the events.

    Raises NotATrace, or InvalidJson after all events before the damage.
    """

    def __init__(self, path: Path) -> None:
        self.facts: dict[str, Any] = {}
        self._file_blocks = file_blocks(path)
        self._text = b""  # read, and not decoded yet
        self._at_end = False
        self._is_first = True  # no event has been decoded
        self._events_ended = False
        self._bytes_before = self._lines_before = 0  # bytes and lines of the file before the text
        self._line_bytes_before = 0  # bytes before the text in its first line
        self._unpacking_error: InvalidJson | None = None

    def __iter__(self) -> Iterator[list[Event]]:
        is_object = self._go_to_events()
        while not self._events_ended:
            if block := self._next_block():
                yield block
        self._read_rest(is_object)

    def _go_to_events(self) -> bool:
        """Advances to the first event. Returns whether the events are in an object; a bare array is a trace, too.
        NotATrace or InvalidJson if there is no list of events."""
        self._read_more()
        begin = self._text.removeprefix(b"\xef\xbb\xbf").lstrip()
        if begin.startswith(b"["):
            self._advance(self._text.index(b"[") + 1)
            return False
        if not begin.startswith(b"{"):
            raise NotATrace(f"no JSON (it begins with {begin[:8]!r})" if begin else "empty")
        searched = 0
        while True:
            for match in EVENTS.finditer(self._text, searched):
                head = _parsed(self._text[: match.end()] + b"]}")
                if isinstance(head, dict):
                    self.facts = head
                    self._advance(match.end())
                    return True
            if self._at_end:
                raise self._no_events_error()
            searched = max(0, len(self._text) - END_BYTES)  # the key may have been cut by the end of the text
            self._read_more()

    def _no_events_error(self) -> ValueError:
        try:
            content = json.loads(self._text)
        except (ValueError, RecursionError) as error:
            before = self._text.decode(errors="replace")[: getattr(error, "pos", 0)]
            return self._invalid_json(len(before.encode()), getattr(error, "msg", "not UTF-8, or nested too deeply"))
        keys = ", ".join(repr(key[:40]) for key in list(content)[:MAX_NAMED_KEYS]) or "none"
        return NotATrace(f"JSON without 'traceEvents' (its keys: {keys})")

    def _next_block(self) -> list[Event]:
        """The next events; none if more has to be read first, or if there are no more."""
        if len(self._text) < BLOCK_BYTES:
            self._read_more()
        end = self._block_end()
        text = self._text[:end].lstrip()
        if end and text.startswith(b",") != self._is_first:  # a comma precedes every event but the first
            block = decoded_block(b"[%b]" % text.removeprefix(b","))
            if block is not None:
                self._advance(end)
                self._is_first = False
                return block
        return self._decode_singly()

    def _block_end(self) -> int:
        """The likely end of the last complete event; 0 if there is none."""
        for first in (max(0, len(self._text) - END_BYTES), 0):
            ends = [match.start() + 1 for match in EVENT_BOUNDARY.finditer(self._text, first)]
            if ends:
                return ends[-1]
        return 0

    def _decode_singly(self) -> list[Event]:
        """As _next_block, for a text that cannot be decoded as a block. InvalidJson if no event can be decoded, since
        the text is damaged there, or the file ends."""
        text, fault = _utf8(self._text)  # `fault`: what is wrong behind the text; later, what is wrong at `position`
        kind_of_fault = "invalid JSON"
        events, position, decoded_end = [], 0, 0  # positions in the text; decoded_end: where the last event ended
        try:
            while True:
                position = SPACE.match(text, position).end()
                if text.startswith("]", position):
                    self._advance(len(text[: position + 1].encode()))
                    self._events_ended = True
                    return events
                if not self._is_first and position < len(text):
                    if text[position] != ",":
                        fault = "',' or ']' is expected after an event"
                        break
                    position = SPACE.match(text, position + 1).end()
                if position == len(text):
                    break
                content, position = SLOW_DECODER.raw_decode(text, position)
                events.append(event_of(content))
                decoded_end, self._is_first = position, False
        except json.JSONDecodeError as error:
            if fault:  # the byte after the text, which is not UTF-8, cuts the event
                position = len(text)
            else:
                fault, position = error.msg.removesuffix(" at"), error.pos
        except (ValueError, RecursionError) as error:
            fault, kind_of_fault = str(error), "an invalid event"
        decoded_bytes = len(text[:decoded_end].encode())
        is_damaged = bool(fault) and len(self._text) - decoded_bytes > MAX_EVENT_BYTES
        if not events and (self._at_end or is_damaged):
            reason = fault or "the file ends within its events"
            error = self._invalid_json(len(text[:position].encode()), reason, kind_of_fault)
            raise self._unpacking_error or error
        if not events:  # the text may be a part of an event, so more is read; the next call meets a fault once more
            self._read_more()
        self._advance(decoded_bytes)
        return events

    def _read_rest(self, is_object: bool) -> None:
        """Reads what follows the events into `facts`. InvalidJson if it is invalid."""
        while not self._at_end:
            self._read_more()
        if self._unpacking_error:
            raise self._unpacking_error
        begin = b'{"":0' if is_object else b"[]"  # makes valid JSON of the rest
        text = begin + self._text
        try:
            rest = json.loads(text)
        except (ValueError, RecursionError) as error:
            position = len(text.decode(errors="replace")[: getattr(error, "pos", 0)].encode())
            raise self._invalid_json(max(position - len(begin), 0), getattr(error, "msg", str(error))) from error
        if is_object:
            if "traceEvents" in rest:
                raise self._invalid_json(0, "'traceEvents' is there a second time")
            self.facts |= rest

    def _read_more(self) -> None:
        """Appends a block of the file to the text. Where a file cannot be unpacked further, it counts as ended."""
        try:
            self._text += next(self._file_blocks)
        except StopIteration:
            self._at_end = True
        except InvalidJson as error:
            self._unpacking_error, self._at_end = error, True

    def _advance(self, count: int) -> None:
        """Drops the first bytes of the text."""
        dropped, self._text = self._text[:count], self._text[count:]
        self._bytes_before += count
        self._lines_before += dropped.count(b"\n")
        bytes_before_dropped = 0 if b"\n" in dropped else self._line_bytes_before
        self._line_bytes_before = len(dropped.rpartition(b"\n")[2]) + bytes_before_dropped

    def _invalid_json(self, position: int, reason: str, kind_of_fault: str = "invalid JSON") -> InvalidJson:
        """The error at this byte of the text."""
        before = self._text[:position]
        line = self._lines_before + before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2]) + 1 + (0 if b"\n" in before else self._line_bytes_before)
        byte = self._bytes_before + position
        return InvalidJson(f"{kind_of_fault} at byte {byte} (line {line}, column {column}): {reason}")


def _parsed(text: bytes) -> Any:
    """The value of the JSON, None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _utf8(text: bytes) -> tuple[str, str]:
    """Returns (the text up to the first byte that is not UTF-8, the fault there, or "" without one)."""
    try:
        return text.decode(), ""
    except UnicodeDecodeError as error:
        return text[: error.start].decode(), "a byte that is not UTF-8"
