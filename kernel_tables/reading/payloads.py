"""NVTX payloads, as `nsys export --include-blobs=true` writes them into `binaryData`.

Such a blob begins with four numbers of 8 bytes: its domain, its layout (nsys's schemaId), the size of its data, and
where these begin.
"""

import struct
from typing import NamedTuple

from kernel_tables.reading.schema import DOMAIN_CREATE

HEADER = struct.Struct("<QQQQ")


def events_condition(table: str, event_type: int, domain: str) -> str:
    """The SQL condition for rows of NVTX_EVENTS, which SQL calls `table`, of one type in the domain of this name."""
    return (
        f"eventType = {event_type} AND (globalTid >> 24, domainId) IN (SELECT globalTid >> 24, domainId FROM {table}"
        f" WHERE eventType = {DOMAIN_CREATE} AND text = '{domain}')"  # each process numbers its domains
    )


class Payload(NamedTuple):
    """The data of a payload, and what they are: the numbers of its domain and of its layout."""

    domain: int
    layout: int
    data: bytes


def payload_of(blob: object) -> Payload | None:
    """The payload in a value of `binaryData`; None if it is not a payload, or incomplete."""
    if not isinstance(blob, bytes) or len(blob) < HEADER.size:
        return None
    domain, layout, size, begin = HEADER.unpack_from(blob)
    if begin != HEADER.size or len(blob) != begin + size:
        return None
    return Payload(domain, layout, blob[begin:])
