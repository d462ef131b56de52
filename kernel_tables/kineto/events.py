"""One event of a trace, decoded by msgspec; where a block of events is damaged, by Python's json, one by one.

Times stay text until they become integer nanoseconds: microseconds since 1970 with three decimals need more digits than
a float64 has. The `args` of a kernel of NCCL contain what PyTorch requested.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

import msgspec
import numpy as np

TEXT_FIELDS, ANY_FIELDS, TIME_FIELDS = ("ph", "cat", "name"), ("pid", "tid", "id"), ("ts", "dur")  # of an event
ARG_KEYS = {  # attribute: key of `args`
    "correlation": "correlation", "external_id": "External id", "old_external_id": "external id",
    "device": "device", "context": "context", "stream": "stream", "bytes": "bytes",
    "grid": "grid", "block": "block", "registers": "registers per thread",
    "sequence": "Sequence number", "forward_thread": "Fwd thread id",
    "collective": "Collective name", "elements_in": "In msg nelems", "elements_out": "Out msg nelems",
    "dtype": "dtype", "group": "Process Group Name", "group_ranks": "Process Group Ranks",
    "shapes": "Input Dims",  # unparsed JSON
}  # fmt: skip
SLOW_DECODER = json.JSONDecoder(parse_float=str)

Args = msgspec.defstruct(
    "Args",
    [(name, msgspec.Raw, msgspec.Raw()) if name == "shapes" else (name, Any, None) for name in ARG_KEYS],
    rename=ARG_KEYS,
    gc=False,
)
Event = msgspec.defstruct(
    "Event",
    [(name, str | None, None) for name in TEXT_FIELDS]
    + [(name, Any, None) for name in ANY_FIELDS]
    + [(name, msgspec.Raw, msgspec.Raw()) for name in TIME_FIELDS]
    + [("args", Args | None, None)],
    gc=False,
)
_FAST_DECODER = msgspec.json.Decoder(list[Event])
NO_ARGS = Args()


def decoded_block(text: bytes) -> list[Event] | None:
    """The events of a JSON array; None if msgspec cannot decode them: then SLOW_DECODER may decode some."""
    try:
        if not text.isascii():
            text.decode()  # msgspec does not check what it skips
        return _FAST_DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def event_of(content: Any) -> Event:
    """The event in what SLOW_DECODER returned. ValueError if it cannot be an event."""
    if not isinstance(content, dict):
        raise ValueError("an event is not an object")
    args = content.get("args")
    if not isinstance(args, dict | None):
        raise ValueError("the args of an event are not an object")
    texts = [content.get(name) for name in TEXT_FIELDS]
    if not all(isinstance(text, str | None) for text in texts):
        raise ValueError("the name or category of an event is not text")
    texts = [text and text.encode(errors="replace").decode() for text in texts]  # a lone surrogate is not valid text
    rest = (content.get(name) for name in (*ANY_FIELDS, *TIME_FIELDS))
    if args is None:
        return Event(*texts, *rest, None)
    shapes = json.dumps(args["Input Dims"]).encode() if "Input Dims" in args else b""
    other_args = (args.get(key) for key in ARG_KEYS.values() if key != "Input Dims")
    return Event(*texts, *rest, Args(*other_args, shapes))  # `shapes` is the last of ARG_KEYS


def joined_times(times: Sequence[Any]) -> bytes:
    """The times as in the file, but without quotation marks. A space follows each, even a missing one."""
    try:
        joined = b" ".join(times)
    except TypeError:
        joined = b" ".join([str(time).encode() if isinstance(time, str | int) else b"" for time in times])
    return joined.replace(b'"', b"") + b" "


def integers(values: Sequence[Any], default: int) -> np.ndarray:
    """The values as 64-bit integers, `default` for None and for what is no integer. Quoted integers, and floats such as
    1.0, are integers, too."""
    known = [default if value is None else value for value in values] if None in values else values
    if set(map(type, known)) <= {int, str}:  # NumPy would cut off the fraction of a float
        try:
            return np.array(known, np.int64)
        except (ValueError, OverflowError):
            pass
    return np.array([_integer(value, default) for value in known], np.int64)


def _integer(value: Any, default: int) -> int:
    try:
        number = float(value) if isinstance(value, str) and "." in value else value
        integer = int(number, 0) if isinstance(number, str) else int(number)  # base 0 takes "0x1f", too
    except (TypeError, ValueError, OverflowError):
        return default
    is_valid = -(1 << 63) <= integer < 1 << 63 and (isinstance(number, str) or integer == number)
    return integer if is_valid else default


# Texts in which all times have the same form, and are below 2^63 ns. The repetition is possessive (*+): otherwise a
# wrong time after many correct ones would make the regex try all ways to match these.
WHOLE_MICROSECONDS = re.compile(rb"(?:-?(?:[0-8]\d{15}|\d{1,15}) )*+")
THREE_DECIMALS = re.compile(rb"(?:-?(?:[0-8]\d{15}|\d{1,15})\.\d{3} )*+")
NONZERO_FRACTION = re.compile(rb"\.0*[1-9]")
MAX_NUMBER_CHARS = 40
TIME_LIMIT_NS = 1 << 63


def nanoseconds(times: bytes) -> np.ndarray:
    """The times from `joined_times`; more than three decimals are rounded. ValueError if one is missing or no time."""
    if WHOLE_MICROSECONDS.fullmatch(times):
        return np.fromstring(times, np.int64, sep=" ") * 1000
    if THREE_DECIMALS.fullmatch(times):
        return np.fromstring(times.replace(b".", b""), np.int64, sep=" ")
    return np.array([_nanoseconds(text) for text in times.decode().split(" ")[:-1]], np.int64)


def has_fractions(times: bytes) -> bool:
    """Whether any time is not a multiple of a microsecond."""
    return NONZERO_FRACTION.search(times) is not None


def _nanoseconds(text: str) -> int:
    if not text:
        raise ValueError("an event has no time")
    whole, _, decimals = text.partition(".")
    if len(decimals) <= 3 and len(whole) < 16 and (whole + decimals).isdecimal():
        return int(whole + decimals.ljust(3, "0"))
    try:
        is_short = len(text) < MAX_NUMBER_CHARS
        value = round(Decimal(text).scaleb(3)) if is_short else TIME_LIMIT_NS  # which is refused below
    except (InvalidOperation, OverflowError, ValueError):
        raise ValueError(f"{text[:MAX_NUMBER_CHARS]!r} is not a time") from None
    if abs(value) >= TIME_LIMIT_NS:
        raise ValueError(f"{text[:MAX_NUMBER_CHARS]!r} is not a time that a clock shows")
    return value


OPERATION_BY_PREFIX = {  # of the name of a collective, in lower case without underscores
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

MAX_COUNT = 1 << 56  # of elements, or a correlation id; times the bytes of an element, it fits in 64 bits


class CollectiveArgs(NamedTuple):
    """The request for a collective in the args of a kernel."""

    correlation: int | None
    call: str  # its external id: the same for all kernels of a call of PyTorch
    name: str  # in lower case without underscores
    elements: tuple[Any, Any]  # of the input and of the output
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


def collective_bytes(kernels: Sequence[CollectiveArgs]) -> list[int | None]:
    """By kernel, the larger of a rank's input and output: all that is reduced, gathered or scattered. None if PyTorch's
    call launched several kernels, or the trace lacks the number or type of the elements."""
    kernel_counts = Counter(kernel.call for kernel in kernels)
    return [_bytes_of(kernel) if kernel_counts[kernel.call] == 1 else None for kernel in kernels]


def _bytes_of(kernel: CollectiveArgs) -> int | None:
    item_bytes = ITEM_BYTES.get(kernel.dtype) if isinstance(kernel.dtype, str) else None
    is_known = item_bytes is not None and all(map(_is_count, kernel.elements))
    return max(kernel.elements) * item_bytes if is_known else None


def operation_named(name: str) -> str | None:
    """The operation of a collective by its name in lower case without underscores, None if it is unknown."""
    return next((operation for prefix, operation in OPERATION_BY_PREFIX.items() if name.startswith(prefix)), None)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value < MAX_COUNT


def _communicator(name: str, ranks: str) -> int:
    """A number for a group of ranks: the same on each of these ranks, and another one for each group."""
    return int.from_bytes(hashlib.sha256(f"{name} {ranks}".encode()).digest()[:7])
