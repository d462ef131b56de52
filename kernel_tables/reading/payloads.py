"""NVTX payloads, as `nsys export --include-blobs=true` writes them into `binaryData`.

A payload begins with four numbers of 8 bytes: its domain, its layout, the size of its data, and where these begin.
"""

import struct
from typing import NamedTuple

HEADER = struct.Struct("<QQQQ")
DOMAIN_CONDITION = (  # of SQL, for rows of NVTX_EVENTS in a domain; each process numbers its domains
    "(globalTid >> 24, domainId) IN (SELECT globalTid >> 24, domainId FROM {table}"
    " WHERE eventType = 75 AND text = '{domain}')"
)


class Payload(NamedTuple):
    """The data of a payload, and what they are: the numbers of its domain and of its layout."""

    domain: int
    layout: int
    data: bytes


def payload_of(value: object) -> Payload | None:
    """The payload in a value of `binaryData`; None if it is not a payload, or incomplete."""
    if not isinstance(value, bytes) or len(value) < HEADER.size:
        return None
    domain, layout, size, begin = HEADER.unpack_from(value)
    if begin != HEADER.size or len(value) != begin + size:
        return None
    return Payload(domain, layout, value[begin:])
