"""One event of a trace: decoded by msgspec if it is installed, else by Python's json, which is slower.

Times stay text: microseconds since 1970 with three decimals need more digits than a float64 has. They become integer
nanoseconds without rounding errors. Of a kernel of NCCL, PyTorch's profiler records in its `args` what PyTorch
requested (2.11: "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Process Group Name", "Process Group
Ranks").
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import make_dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

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
        raise ValueError("an event is not an object")
    args = content.get("args")
    if not isinstance(args, dict | None):
        raise ValueError("the args of an event are not an object")
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


# Fewer than 2^63 nanoseconds; all numbers of a text have one form. Possessive (*+): else, before a wrong number, many
# correct ones would be matched again in every other way.
WHOLE = re.compile(rb"(?:-?(?:[0-8]\d{15}|\d{1,15}) )*+")
THREE_DECIMALS = re.compile(rb"(?:-?(?:[0-8]\d{15}|\d{1,15})\.\d{3} )*+")
FRACTION = re.compile(rb"\.0*[1-9]")
LONGEST = 40  # characters of a number
LARGEST_NS = 1 << 63


def nanoseconds(written: bytes) -> np.ndarray:
    """The times, each followed by a space; more than three decimals are rounded. ValueError if one is not a time."""
    if WHOLE.fullmatch(written):
        return np.fromstring(written, np.int64, sep=" ") * 1000
    if THREE_DECIMALS.fullmatch(written):
        return np.fromstring(written.replace(b".", b""), np.int64, sep=" ")
    return np.array([_nanoseconds(text) for text in written.decode().split(" ")[:-1]], np.int64)


def has_fractions(written: bytes) -> bool:
    """Whether any time is not a multiple of a microsecond."""
    return FRACTION.search(written) is not None


def _nanoseconds(text: str) -> int:
    if not text:
        raise ValueError("an event has no time")
    whole, _, decimals = text.partition(".")
    if len(decimals) <= 3 and len(whole) < 16 and (whole + decimals).isdecimal():
        return int(whole + decimals.ljust(3, "0"))
    try:
        value = round(Decimal(text).scaleb(3)) if len(text) < LONGEST else LARGEST_NS
    except (InvalidOperation, OverflowError, ValueError):
        raise ValueError(f"{text[:LONGEST]!r} is not a time") from None
    if abs(value) >= LARGEST_NS:
        raise ValueError(f"{text[:LONGEST]!r} is not a time that a clock shows")
    return value


OPERATIONS = {  # by how the name of a collective begins, in lower case without underscores
    "allreduce": "all-reduce",
    "barrier": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send-recv",
    "recv": "send-recv",
}
ITEM_BYTES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2, "Char": 1,
    "Byte": 1, "Bool": 1, "Float8_e4m3fn": 1, "Float8_e5m2": 1,
}  # fmt: skip

MAX_COUNT = 1 << 56  # elements, or the number of a call; with the size of an element it fits in 64 bits


class CollectiveArgs(NamedTuple):
    """The request for a collective, as the trace has it in the args of a kernel."""

    correlation: int | None
    call: Any  # the same for all kernels of a call of PyTorch
    name: str
    elements: tuple[Any, Any]
    dtype: Any
    communicator: int


def collective_args(kernels: Iterable[Event]) -> list[CollectiveArgs]:
    """The requests of the kernels that are collectives."""
    collectives = [event.args for event in kernels if event.args and event.args.collective is not None]
    return [
        CollectiveArgs(
            correlation=args.correlation if _is_count(args.correlation) else None,
            call=str(args.external_id),
            name=str(args.collective).replace("_", "").lower(),
            elements=(args.elements_in, args.elements_out),
            dtype=args.dtype,
            communicator=_communicator(str(args.group), str(args.group_ranks)),
        )
        for args in collectives
    ]


def collective_rows(kernels: Sequence[CollectiveArgs]) -> list[dict[str, Any]]:
    """A row per kernel with a request: correlationId, operation, bytes, communicator.

    `bytes` are those of the larger side of one rank: of what is reduced, of all that is gathered or scattered. They are
    missing if PyTorch's call launched several kernels.
    """
    of_call = Counter(kernel.call for kernel in kernels)
    return [_row(kernel, is_only_kernel=of_call[kernel.call] == 1) for kernel in kernels]


def _row(kernel: CollectiveArgs, *, is_only_kernel: bool) -> dict[str, Any]:
    item = ITEM_BYTES.get(kernel.dtype) if isinstance(kernel.dtype, str) else None
    is_known = is_only_kernel and item is not None and all(map(_is_count, kernel.elements))
    return {
        "correlationId": kernel.correlation,
        "operation": operation_named(kernel.name),
        "bytes": max(kernel.elements) * item if is_known else None,
        "communicator": kernel.communicator,
    }


def operation_named(name: str) -> str | None:
    """The operation of a collective by its name in lower case, None if it is unknown."""
    return next((OPERATIONS[begin] for begin in OPERATIONS if name.startswith(begin)), None)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < MAX_COUNT


def _communicator(name: str, ranks: str) -> int:
    """A number of a group of ranks that is the same on each rank, and differs between groups."""
    return int.from_bytes(hashlib.sha256(f"{name} {ranks}".encode()).digest()[:7])
