"""Collectives of NCCL: PyTorch's profiler records what PyTorch requested of each kernel in the kernel's `args`
(2.11: "Collective name", "In msg nelems", "Out msg nelems", "dtype", "Process Group Name", "Process Group Ranks")."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kernel_tables.kineto.events import Event

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
