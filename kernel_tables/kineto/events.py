"""One event of a trace: decoded by msgspec if it is installed, else by Python's json, which is slower.

Times stay text: microseconds since 1970 with three decimals need more digits than a float64 has.
"""

import json
from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Any

import numpy as np

try:
    import msgspec
except ModuleNotFoundError:  # the slow way gives the same events
    msgspec = None

TEXTS, PLAIN, EXACT = ("ph", "cat", "name"), ("pid", "tid", "id"), ("ts", "dur")
ARGS = {  # attribute: key of `args`
    "correlation": "correlation", "external_id": "External id", "old_external_id": "external id",
    "device": "device", "context": "context", "stream": "stream", "bytes": "bytes",
    "grid": "grid", "block": "block", "registers": "registers per thread",
    "sequence": "Sequence number", "forward_thread": "Fwd thread id",
    "collective": "Collective name", "elements_in": "In msg nelems", "elements_out": "Out msg nelems",
    "dtype": "dtype", "group": "Process Group Name", "group_ranks": "Process Group Ranks",
    "shapes": "Input Dims",  # as they are written
}  # fmt: skip
SLOW = json.JSONDecoder(parse_float=str)

if msgspec:
    Args = msgspec.defstruct(
        "Args",
        [(name, msgspec.Raw, msgspec.Raw()) if name == "shapes" else (name, Any, None) for name in ARGS],
        rename=ARGS,
        gc=False,
    )
    Event = msgspec.defstruct(
        "Event",
        [(name, str | None, None) for name in TEXTS]
        + [(name, Any, None) for name in PLAIN]
        + [(name, msgspec.Raw, msgspec.Raw()) for name in EXACT]
        + [("args", Args | None, None)],
        gc=False,
    )
    _FAST = msgspec.json.Decoder(list[Event])
else:
    Args = make_dataclass("Args", [(name, Any, b"" if name == "shapes" else None) for name in ARGS], slots=True)
    Event = make_dataclass("Event", [(name, Any, None) for name in (*TEXTS, *PLAIN, *EXACT, "args")], slots=True)
NO_ARGS = Args()


def decoded_block(text: bytes) -> list[Event] | None:
    """The events of a JSON array; None if only the slow way can decode them."""
    if msgspec is None:
        return None
    try:
        if not text.isascii():
            text.decode()  # msgspec does not check what it skips
        return _FAST.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def event_of(content: Any) -> Event:
    """The event of an object decoded by SLOW. ValueError if it cannot be an event."""
    if not isinstance(content, dict):
        raise ValueError("an event is no object")
    args = content.get("args")
    if not isinstance(args, dict | None):
        raise ValueError("the args of an event are no object")
    texts = [content.get(name) for name in TEXTS]
    if not all(isinstance(text, str | None) for text in texts):
        raise ValueError("the name or category of an event is not text")
    texts = [text and text.encode(errors="replace").decode() for text in texts]  # a lone surrogate is not valid text
    rest = (content.get(name) for name in (*PLAIN, *EXACT))
    if args is None:
        return Event(*texts, *rest, None)
    shapes = json.dumps(args["Input Dims"]).encode() if "Input Dims" in args else b""
    return Event(*texts, *rest, Args(*(args.get(key) for key in ARGS.values() if key != "Input Dims"), shapes))


def written(times: Sequence[Any]) -> bytes:
    """The numbers as in the file, with a space after each. ValueError if one is missing."""
    try:
        joined = b" ".join(times)
    except TypeError:
        joined = b" ".join([str(time).encode() if isinstance(time, str | int) else b"" for time in times])
    return joined.replace(b'"', b"") + b" "


def integers(values: Sequence[Any], otherwise: int) -> np.ndarray:
    """The values as integers, `otherwise` for None and values that are not integers; quoted numbers count."""
    try:
        return np.array([otherwise if v is None else v for v in values] if None in values else values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value, otherwise) for value in values], np.int64)


def _integer(value: Any, otherwise: int) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError, OverflowError):
        return otherwise
    return number if -(1 << 63) <= number < 1 << 63 else otherwise
