"""What NCCL says of its own calls: NVTX ranges of its domain, whose payload tells bytes and communicator.

Where a payload has them stands in NVTX_PAYLOAD_SCHEMA_ENTRIES, by domain and layout, under the names that NCCL gives
(src/include/nvtx_payload_schemas.h of NCCL). Seen of NCCL 2.28 by nsys 2025.3.
"""

from __future__ import annotations

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

Layouts = dict[tuple[int, int], dict[str, int]]  # by domain and layout: where each of FIELDS lies in the data


class NcclCall(NamedTuple):
    """One call of NCCL's interface. `bytes` are what it counts itself: of an all-gather what this rank gives, of a
    reduce-scatter what it gets, of an all-to-all what it gives to each; None where the payload does not tell."""

    start_ns: int
    end_ns: int
    thread: int  # global id
    name: str  # ncclAllReduce
    bytes: int | None
    communicator: int | None  # the same number on all its ranks


def layouts(entries: Iterable[tuple]) -> Layouts:
    """From the LAYOUT_COLUMNS of NVTX_PAYLOAD_SCHEMA_ENTRIES. The table does not say of which process
    an entry is, so a layout that two of them lay out differently is left out."""
    found: Layouts = {}
    doubtful = set()
    for domain, layout, name, kind, offset in entries:
        if name not in FIELDS or kind not in NUMBERS:
            continue
        place = 0 if offset is None else offset
        known = found.setdefault((domain, layout), {}).setdefault(name, place)
        if known != place or not (isinstance(place, int) and 0 <= place < 1 << 16):
            doubtful.add((domain, layout))
    return {key: fields for key, fields in found.items() if key not in doubtful}


def told(payload: object, known: Layouts) -> dict[str, int]:
    """Those of FIELDS that a payload tells."""
    unpacked = data_of(payload)
    if unpacked is None:
        return {}
    domain, layout, data = unpacked
    places = known.get((domain, layout), {}).items()
    return {name: NUMBER.unpack_from(data, place)[0] for name, place in places if place + NUMBER.size <= len(data)}


def bytes_of(fields: dict[str, int]) -> int | None:
    """The bytes among what a payload tells, None for what no message has."""
    size = fields.get(BYTES)
    return size if size is not None and size <= MOST_BYTES else None


def publishable_call(payload: object, known: Layouts) -> bytes | None:
    """The payload with zeros in the place of all that is none of FIELDS (its gaps hold what was in memory before)."""
    unpacked = data_of(payload)
    fields = told(payload, known)
    if unpacked is None or not fields:
        return None
    domain, layout, data = unpacked
    kept = bytearray(len(data))
    for name, value in fields.items():
        NUMBER.pack_into(kept, known[domain, layout][name], value)
    return HEAD.pack(domain, layout, len(data), HEAD.size) + bytes(kept)
