"""Collectives of NCCL: PyTorch's profiler tells of each of its kernels what PyTorch asked for, in the kernel's `args`
(2.11: "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Process Group Name", "Process Group Ranks")."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from typing import Any

from kernel_tables.kineto.trace import Event

OPERATIONS = {  # by how the name of a collective begins, without underscores
    "allreduce": "all-reduce",
    "barrier": "all-reduce",
    "allgather": "all-gather",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
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


def collective_rows(kernels: Sequence[Event]) -> list[dict[str, Any]]:
    """A row for each kernel of which PyTorch told what it asked for: correlationId, operation, bytes, communicator.

    `bytes` are those of the larger side of one rank: of what is reduced, of all that is gathered or scattered. They are
    missing where PyTorch's call launched several kernels.
    """
    asked = [event for event in kernels if "Collective name" in event.args]
    of_call = Counter(event.args.get("External id") for event in asked)
    return [_row(event, is_alone=of_call[event.args.get("External id")] == 1) for event in asked]


def _row(event: Event, *, is_alone: bool) -> dict[str, Any]:
    args = event.args
    name = str(args["Collective name"]).replace("_", "").lower()
    sizes = [args.get("In msg nelems"), args.get("Out msg nelems")]
    item = ITEM_BYTES.get(args.get("dtype"))
    is_known = is_alone and item is not None and all(isinstance(size, int) for size in sizes)
    return {
        "correlationId": event.correlation,
        "operation": next((OPERATIONS[begin] for begin in OPERATIONS if name.startswith(begin)), None),
        "bytes": max(sizes) * item if is_known else None,
        "communicator": _communicator(str(args.get("Process Group Name")), str(args.get("Process Group Ranks"))),
    }


def _communicator(name: str, ranks: str) -> int:
    """A number that a group of ranks has on each of them, and no other group."""
    return int.from_bytes(hashlib.sha256(f"{name} {ranks}".encode()).digest()[:7])
