"""The calls of NCCL: NVTX ranges of its domain, whose payloads contain bytes and communicator.

NVTX_PAYLOAD_SCHEMA_ENTRIES lists where a payload has them, by domain and layout, under the names that NCCL gives
(src/include/nvtx_payload_schemas.h of NCCL). Seen with NCCL 2.28 and nsys 2025.3.
"""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from kernel_tables.reading.payloads import HEAD, OF_DOMAIN, data_of

DOMAIN = "NCCL"
LAYOUTS = "NVTX_PAYLOAD_SCHEMA_ENTRIES"
LAYOUT_COLUMNS = ("domainId", "schemaId", "name", "type", "offset")
FIELDS = BYTES, COMMUNICATOR = ("Message size [bytes]", "NCCL communicator ID")
NUMBERS = (18, 22)  # types of an entry: uint64, size_t
NUMBER = struct.Struct("<Q")
OF_CALLS = "eventType = 59 AND " + OF_DOMAIN.format(table="{table}", domain=DOMAIN)
MOST_BYTES = 1 << 44  # of one call, so that no sum of them is too large for 64 bits

Layouts = dict[tuple[int, int], dict[str, int]]  # by domain and layout: the offset of each of FIELDS in the data


class NcclCall(NamedTuple):
    """One call of NCCL's interface. `bytes` are what NCCL counts: what this rank gives in an all-gather, gets in a
    reduce-scatter, or gives to each rank in an all-to-all; None if the payload lacks them."""

    start_ns: int
    end_ns: int
    thread: int  # global id
    name: str  # ncclAllReduce
    bytes: int | None
    communicator: int | None  # the same number on all its ranks


def layouts(entries: Iterable[tuple]) -> Layouts:
    """The layouts in the LAYOUT_COLUMNS of NVTX_PAYLOAD_SCHEMA_ENTRIES. The table does not name the process of an
    entry, so a layout that differs between processes is left out."""
    offsets: Layouts = {}
    ambiguous = set()
    for domain, layout, name, kind, offset in entries:
        if name not in FIELDS or kind not in NUMBERS:
            continue
        offset = 0 if offset is None else offset
        first_offset = offsets.setdefault((domain, layout), {}).setdefault(name, offset)
        if first_offset != offset or not (isinstance(offset, int) and 0 <= offset < 1 << 16):
            ambiguous.add((domain, layout))
    return {key: fields for key, fields in offsets.items() if key not in ambiguous}


def payload_fields(payload: object, known: Layouts) -> dict[str, int]:
    """Those of FIELDS that a payload contains."""
    unpacked = data_of(payload)
    if unpacked is None:
        return {}
    domain, layout, data = unpacked
    offsets = known.get((domain, layout), {}).items()
    return {name: NUMBER.unpack_from(data, start)[0] for name, start in offsets if start + NUMBER.size <= len(data)}


def bytes_of(fields: dict[str, int]) -> int | None:
    """The bytes among the fields of a payload, None if no message is that long."""
    size = fields.get(BYTES)
    return size if size is not None and size <= MOST_BYTES else None


def publishable_call(payload: object, known: Layouts) -> bytes | None:
    """The payload with zeros outside of FIELDS (gaps hold what was in memory before)."""
    unpacked = data_of(payload)
    fields = payload_fields(payload, known)
    if unpacked is None or not fields:
        return None
    domain, layout, data = unpacked
    cleaned = bytearray(len(data))
    for name, value in fields.items():
        NUMBER.pack_into(cleaned, known[domain, layout][name], value)
    return HEAD.pack(domain, layout, len(data), HEAD.size) + bytes(cleaned)
