"""NVTX payloads, as `nsys export --include-blobs=true` writes them into `binaryData`.

A payload begins with four numbers of 8 bytes: its domain, its layout, the size of its data, and where these begin.
"""

import struct

HEAD = struct.Struct("<QQQQ")
OF_DOMAIN = (  # a condition on rows of NVTX_EVENTS; domains are numbered by process
    "(globalTid >> 24, domainId) IN (SELECT globalTid >> 24, domainId FROM {table}"
    " WHERE eventType = 75 AND text = '{domain}')"
)


def data_of(payload: object) -> tuple[int, int, bytes] | None:
    """The domain, the layout and the data of a payload; None if it is not a payload, or incomplete."""
    if not isinstance(payload, bytes) or len(payload) < HEAD.size:
        return None
    domain, layout, size, begin = HEAD.unpack_from(payload)
    if begin != HEAD.size or len(payload) != begin + size:
        return None
    return domain, layout, payload[begin:]
