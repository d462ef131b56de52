"""The calls of NCCL: NVTX ranges of its domain, whose payloads contain the bytes and the communicator.

NVTX_PAYLOAD_SCHEMA_ENTRIES lists at which offsets a payload has these two, by its domain and its layout (schemaId),
under NCCL's names for them (src/include/nvtx_payload_schemas.h of NCCL). Seen with NCCL 2.28 and nsys 2025.3.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kernel_tables.reading.payloads import HEADER, Payload, payload_of
from kernel_tables.reading.small_queries import as_text

DOMAIN = "NCCL"
LAYOUTS_TABLE = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
LAYOUT_COLUMNS = ("domainId", "schemaId", "name", "type", "offset")
BYTES, COMMUNICATOR = "Message size [bytes]", "NCCL communicator ID"
FIELDS = (BYTES, COMMUNICATOR)
NUMBER_TYPES = (18, 22)  # of an entry that is a number: uint64, size_t
NUMBER = struct.Struct("<Q")
MAX_OFFSET = 1 << 16
MAX_BYTES = 1 << 44  # of one call, so that sums fit into 64 bits

Layouts = dict[tuple[int, int], dict[str, int]]  # by (domain, layout): the offsets of FIELDS in the data


class NcclCall(NamedTuple):
    """One call of NCCL's interface. `bytes` are what NCCL counts: the whole message of an all-reduce; what this rank
    gives in an all-gather, gets in a reduce-scatter, or gives to each rank in an all-to-all; None if unknown."""

    start_ns: int
    end_ns: int
    thread: int  # global id
    name: str  # ncclAllReduce
    bytes: int | None
    communicator: int | None  # the same number on all its ranks


def layouts_in(entries: Iterable[tuple]) -> Layouts:
    """The layouts in rows with the LAYOUT_COLUMNS of NVTX_PAYLOAD_SCHEMA_ENTRIES. A row does not name its process, so a
    layout that differs between processes is left out."""
    offsets: Layouts = {}
    rejected = set()
    for domain, layout, name, entry_type, stated_offset in entries:
        if name not in FIELDS or entry_type not in NUMBER_TYPES:
            continue
        offset = 0 if stated_offset is None else stated_offset
        layout_offsets = offsets.setdefault((domain, layout), {})
        first_offset = layout_offsets.setdefault(name, offset)
        is_possible = isinstance(offset, int) and 0 <= offset < MAX_OFFSET
        if first_offset != offset or not is_possible:
            rejected.add((domain, layout))
    return {key: fields for key, fields in offsets.items() if key not in rejected}


def payload_fields(blob: object, layouts: Layouts) -> dict[str, int]:
    """Those of FIELDS that the payload in a value of `binaryData` contains."""
    domain, layout, data = payload_of(blob) or Payload(domain=0, layout=0, data=b"")
    offsets = layouts.get((domain, layout), {}).items()
    return {name: NUMBER.unpack_from(data, start)[0] for name, start in offsets if start + NUMBER.size <= len(data)}


def bytes_of(fields: dict[str, int]) -> int | None:
    """The bytes among the fields of a payload; None if it lacks them, or has more than any message can have."""
    size = fields.get(BYTES)
    return size if size is not None and size <= MAX_BYTES else None


def calls_in(rows: Iterable[tuple], entries: Iterable[tuple]) -> list[NcclCall]:
    """The calls, by thread, then time. `rows`: start, end, thread, name, `binaryData`; `entries` as for layouts_in."""
    layouts, calls = layouts_in(entries), []
    for start_ns, end_ns, thread, name, blob in rows:
        fields = payload_fields(blob, layouts)
        calls.append(
            NcclCall(start_ns, end_ns, thread, as_text(name) or "", bytes_of(fields), fields.get(COMMUNICATOR))
        )
    return sorted(calls, key=lambda call: (call.thread, call.start_ns, -call.end_ns))


def publishable_payload(blob: object, layouts: Layouts) -> bytes | None:
    """The payload with zeros outside of FIELDS, since padding may hold leftover memory of the program; None if it has
    none of FIELDS."""
    fields = payload_fields(blob, layouts)
    if not fields:
        return None
    domain, layout, data = payload_of(blob)
    cleaned = bytearray(len(data))
    for name, value in fields.items():
        NUMBER.pack_into(cleaned, layouts[domain, layout][name], value)
    return HEADER.pack(domain, layout, len(data), HEADER.size) + bytes(cleaned)  # the data begin after the header
