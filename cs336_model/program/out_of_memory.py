"""The facts about a real torch.OutOfMemoryError: a result of the grid, not a failure."""

import re

import torch

# torch.OutOfMemoryError since 2.5; before, only torch.cuda had it
OutOfMemoryError = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)

_REQUEST = re.compile(r"Tried to allocate ([0-9.]+) (bytes|KiB|MiB|GiB)")
_UNIT_BYTES = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def requested_bytes(message: str) -> int | None:
    """The requested bytes in torch's message, which has two digits after the point; None if it has none."""
    match = _REQUEST.search(message)
    return round(float(match[1]) * _UNIT_BYTES[match[2]]) if match else None


def out_of_memory_record(error: BaseException, during: str) -> dict[str, str | int | None]:
    """The `out_of_memory` entry of a result: when, the requested bytes, and the free and total bytes of the device. It
    does not have the message, which may come from the model: results are published."""
    free_bytes, total_bytes = torch.cuda.mem_get_info() if torch.cuda.is_available() else (None, None)
    return {
        "during": during,
        "requested_bytes": requested_bytes(str(error)),
        "free_bytes": free_bytes,
        "total_bytes": total_bytes,
    }
