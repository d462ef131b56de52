"""The events of a trace's JSON, a few megabytes at a time, and where the JSON is invalid.

A block ends between two events. The end is guessed, and the block decoded: if the guess is inside an event or a
text, the block is not valid JSON. Then, and if the JSON is damaged, the events are decoded one by one.
"""

import json
import re
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from kernel_tables.kineto.events import SLOW, Event, decoded_block, event_of

BLOCK_BYTES, PACKED_BYTES = 4 << 20, 1 << 18
LONGEST_EVENT = 16 << 20  # bytes; JSON that is invalid for longer is damaged, not cut by the end of a block
GZIP_MAGIC, GZIP_WINDOW = b"\x1f\x8b", 31
EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
BETWEEN = re.compile(rb"\}\s*,\s*\{")
SPACE = re.compile(r"[ \t\n\r]*")
NEAR_THE_END = 1 << 16  # bytes in which the end of an event is looked for first
MOST_KEYS_NAMED = 6


class NotATrace(ValueError):
    """JSON that holds something else, or no JSON at all."""


class InvalidJson(ValueError):
    """Where and why the JSON is invalid; all events before that position have been yielded."""


def pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file, unpacked if it is gzipped. InvalidJson if the rest cannot be unpacked."""
    with path.open("rb") as file:
        if file.read(len(GZIP_MAGIC)) != GZIP_MAGIC:
            file.seek(0)
            yield from iter(partial(file.read, BLOCK_BYTES), b"")
            return
        file.seek(0)
        unpacker = zlib.decompressobj(GZIP_WINDOW)
        while packed := unpacker.unconsumed_tail or unpacker.unused_data.lstrip(b"\0") or file.read(PACKED_BYTES):
            if unpacker.eof:  # a file of several parts
                unpacker = zlib.decompressobj(GZIP_WINDOW)
            try:
                yield unpacker.decompress(packed, BLOCK_BYTES)
            except zlib.error as error:
                raise InvalidJson(f"it cannot be unpacked ({error}): the gzip file is damaged") from error
        if not unpacker.eof:
            raise InvalidJson("it cannot be unpacked to its end: the gzip file is cut off")


class EventStream:
    """The blocks of events of a file, as an iterator; afterwards `facts` holds the other keys of its JSON object.

    Raises NotATrace, or InvalidJson after all events before the damage.
    """

    def __init__(self, path: Path) -> None:
        self.facts: dict[str, Any] = {}
        self._pieces = pieces(path)
        self._text = b""
        self._at_end = False
        self._is_first = True  # no event has been decoded
        self._bytes = self._lines = 0  # before the text
        self._line_bytes = 0  # of these, since the last end of a line
        self._cut: InvalidJson | None = None

    def __iter__(self) -> Iterator[list[Event]]:
        is_object = self._open()
        ended = False
        while not ended:
            block, ended = self._next_block()
            if block:
                yield block
        self._read_rest(is_object)

    def _open(self) -> bool:
        """Goes to the first event. Returns whether the events are in an object; a bare array is a trace, too."""
        self._more()
        begin = self._text.removeprefix(b"\xef\xbb\xbf").lstrip()
        if begin.startswith(b"["):
            self._take(self._text.index(b"[") + 1)
            return False
        if not begin.startswith(b"{"):
            raise NotATrace(f"no JSON (it begins with {begin[:8]!r})" if begin else "empty")
        searched = 0
        while True:
            for match in EVENTS.finditer(self._text, searched):
                head = _parsed(self._text[: match.end()] + b"]}")
                if isinstance(head, dict):
                    self.facts = head
                    self._take(match.end())
                    return True
            if self._at_end:
                raise self._of_no_events()
            searched = max(0, len(self._text) - NEAR_THE_END)  # the key may have been cut
            self._more()

    def _of_no_events(self) -> ValueError:
        try:
            content = json.loads(self._text)
        except (ValueError, RecursionError) as error:
            place = self._text.decode(errors="replace")[: getattr(error, "pos", 0)]
            return self._fault(len(place.encode()), getattr(error, "msg", "no text of UTF-8, or nested too deeply"))
        keys = ", ".join(repr(key[:40]) for key in list(content)[:MOST_KEYS_NAMED]) or "none"
        return NotATrace(f"JSON without 'traceEvents' (its keys: {keys})")

    def _next_block(self) -> tuple[list[Event], bool]:
        """(the next events, whether they are the last ones)"""
        if len(self._text) < BLOCK_BYTES:
            self._more()
        end = self._last_end()
        begin = self._text[:end].lstrip()
        if end and (self._is_first or begin.startswith(b",")):
            block = decoded_block(b"[%b]" % begin[not self._is_first :])
            if block is not None:
                self._take(end)
                self._is_first = False
                return block, False
        return self._one_by_one()

    def _last_end(self) -> int:
        """The likely end of the last event but one; 0 if there is none."""
        for first in (max(0, len(self._text) - NEAR_THE_END), 0):
            ends = [match.start() + 1 for match in BETWEEN.finditer(self._text, first)]
            if ends:
                return ends[-1]
        return 0

    def _one_by_one(self) -> tuple[list[Event], bool]:
        """The next events, of a text that cannot be decoded as a block. InvalidJson if there is no further event."""
        text, fault = _utf8(self._text)
        events, place, done, wrong = [], 0, 0, "invalid JSON"
        try:
            while True:
                place = SPACE.match(text, place).end()
                if text.startswith("]", place):
                    self._take(len(text[: place + 1].encode()))
                    return events, True
                if not self._is_first and place < len(text):
                    if text[place] != ",":
                        fault = "',' or ']' is expected after an event"
                        break
                    place = SPACE.match(text, place + 1).end()
                if place == len(text):
                    break
                content, place = SLOW.raw_decode(text, place)
                events.append(event_of(content))
                done, self._is_first = place, False
        except json.JSONDecodeError as error:
            fault, place = (fault, len(text)) if fault else (error.msg.removesuffix(" at"), error.pos)
        except (ValueError, RecursionError) as error:
            fault, wrong = str(error), "an invalid event"
        left_over = len(self._text) - len(text[:done].encode())
        if not events and (self._at_end or (fault and left_over > LONGEST_EVENT)):
            raise self._cut or self._fault(
                len(text[:place].encode()), fault or "the file ends within its events", wrong
            )
        if not events:
            self._more()
        self._take(len(text[:done].encode()))
        return events, False

    def _read_rest(self, is_object: bool) -> None:
        """Reads what follows the events."""
        while not self._at_end:
            self._more()
        if self._cut:
            raise self._cut
        begin = b'{"":0' if is_object else b"["
        text = begin + (self._text if is_object else b"]" + self._text)
        try:
            rest = json.loads(text)
        except (ValueError, RecursionError) as error:
            place = len(text.decode(errors="replace")[: getattr(error, "pos", 0)].encode())
            raise self._fault(max(place - len(begin), 0), getattr(error, "msg", str(error))) from error
        if is_object:
            if "traceEvents" in rest:
                raise self._fault(0, "'traceEvents' is there a second time")
            self.facts |= rest

    def _more(self) -> None:
        """Reads on. The text ends where it cannot be unpacked."""
        try:
            self._text += next(self._pieces)
        except StopIteration:
            self._at_end = True
        except InvalidJson as error:
            self._cut, self._at_end = error, True

    def _take(self, count: int) -> None:
        taken, self._text = self._text[:count], self._text[count:]
        self._bytes += count
        self._lines += taken.count(b"\n")
        last_line = taken.rfind(b"\n")
        self._line_bytes = count - last_line - 1 if last_line >= 0 else self._line_bytes + count

    def _fault(self, place: int, reason: str, wrong: str = "invalid JSON") -> InvalidJson:
        before = self._text[:place]
        line = self._lines + before.count(b"\n") + 1
        column = len(before) - before.rfind(b"\n") if b"\n" in before else self._line_bytes + len(before) + 1
        return InvalidJson(f"{wrong} at byte {self._bytes + place} (line {line}, column {column}): {reason}")


def _parsed(text: bytes) -> Any:
    """The value of the JSON, None if it is invalid."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _utf8(text: bytes) -> tuple[str, str]:
    """(the text up to the first byte that is not UTF-8, the fault)"""
    try:
        return text.decode(), ""
    except UnicodeDecodeError as error:
        return text[: error.start].decode(), "a byte that is not UTF-8"
