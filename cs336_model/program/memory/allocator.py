"""The recorder on a GPU: the history of PyTorch's caching allocator, and its counters at both ends of every range.

The backward pass runs in its own thread, so no label of a thread tells the range of an allocation. The number of
allocations and releases that the allocator has counted when a range opens and closes does, to the event.
"""

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import torch

from cs336_model.program.memory.history import Event, History, Range, Unmet

KEPT = ("segments", "device_traces")
IN_PACKAGES = ("site-packages", "dist-packages")
OF_A_FRAME = ("name", "line")
ENTRY_KEYS = ("action", "addr", "size", "stream", "time_us", "device_free", "pool_id", "segment_pool_id", "version")
SEGMENT_KEYS = (
    "device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
    "segment_pool_id", "is_expandable",
)  # fmt: skip
BLOCK_KEYS = ("address", "size", "requested_size", "state")


def publishable(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A copy that holds what pytorch.org/memory_viz draws, and no path of this machine: what is not known here by its
    key is left out, settings and annotations among it."""
    return {
        "segments": [
            _of(SEGMENT_KEYS, one) | {"blocks": [_with_frames(BLOCK_KEYS, block) for block in one["blocks"]]}
            for one in snapshot["segments"]
        ],
        "device_traces": [[_with_frames(ENTRY_KEYS, entry) for entry in trace] for trace in snapshot["device_traces"]],
    }


def published_path(file: str) -> str:
    """The path of a source file below the folder that it was imported from: "cs336_model/model/transformer.py",
    "torch/nn/modules/module.py"; of any other file its last name alone."""
    parts = PurePath(file).parts
    for folder in IN_PACKAGES:
        if folder in parts:
            return "/".join(parts[parts.index(folder) + 1 :])
    if "cs336_model" in parts:
        last = len(parts) - 1 - parts[::-1].index("cs336_model")
        return "/".join(parts[last:])
    return parts[-1] if parts else ""


def _with_frames(keys: tuple[str, ...], one: dict[str, Any]) -> dict[str, Any]:
    frames = [
        _of(OF_A_FRAME, frame) | {"filename": published_path(frame["filename"])} for frame in one.get("frames", ())
    ]
    return _of(keys, one) | {"frames": frames}


def _of(keys: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


REQUESTED, ALLOCATED, RESERVED = (f"{name}_bytes.all.peak" for name in ("requested", "allocated", "reserved"))
KINDS = {"alloc": True, "free_completed": False}  # the entries that are events, and whether they allocate
CANNOT = ["what NCCL and the CUDA context take is in no history of the allocator; the driver's figure holds it"]


class AllocatorMemory:
    """Records until `ended` is called."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._ranges, self._open = device, [], []
        torch.cuda.init()
        self._before = self._counted()
        torch.cuda.memory._record_memory_history(stacks="python", context="alloc")
        self._snapshot: dict[str, Any] = {}

    def emitter(self, name: str) -> "MarkedRange":
        """A range of this name, whose ends are noted."""
        return MarkedRange(name, self._ranges, self._open, lambda: self._counted() - self._before)

    def ended(self, held: dict[str, list[int]]) -> History:
        """All that happened since the beginning."""
        stats = torch.cuda.memory_stats(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        self._snapshot = torch.cuda.memory._snapshot(self._device)
        torch.cuda.memory._record_memory_history(None)
        trace = self._snapshot["device_traces"][self._device.index]
        counters = {
            "requested_peak": stats[REQUESTED], "allocated_peak": stats[ALLOCATED], "reserved_peak": stats[RESERVED],
            "driver_used": total - free,
        }  # fmt: skip
        return History(events_of_trace(trace), self._ranges, held, counters, CANNOT, unmet_in(trace, self._ranges))

    def snapshot(self) -> dict[str, Any]:
        """The snapshot for pytorch.org/memory_viz, as it may be published."""
        return publishable(self._snapshot)

    def _counted(self) -> int:
        """Allocations and completed releases since the process began: the number of the next event."""
        counted = torch.cuda.memory_stats_as_nested_dict(self._device)
        return counted["allocation"]["all"]["allocated"] + counted["active"]["all"]["freed"]


class MarkedRange:
    """A range that notes how many events there were when it opened and when it closed."""

    __slots__ = ("_name", "_number", "_open", "_position", "_ranges")

    def __init__(self, name: str, ranges: list[Range], opened: list[int], position: Callable[[], int]) -> None:
        self._name, self._ranges, self._open, self._position = name, ranges, opened, position

    def __enter__(self) -> None:
        self._number = len(self._ranges)
        self._ranges.append(Range(self._name, self._open[-1] if self._open else None, self._position()))
        self._open.append(self._number)

    def __exit__(self, *error: object) -> None:
        self._ranges[self._number].closed, self._ranges[self._number].failed = self._position(), error[0] is not None
        self._open.remove(self._number)


def events_of_trace(entries: list[dict[str, Any]]) -> list[Event]:
    """The allocations and completed releases among the entries of an allocator's trace; a release counts when it is
    completed, as `requested_bytes` counts it."""
    return [
        Event(KINDS[one["action"]], one["addr"], one["size"], one["time_us"])
        for one in entries
        if one["action"] in KINDS
    ]


def unmet_in(entries: list[dict[str, Any]], ranges: list[Range]) -> Unmet | None:
    """The last request in an allocator's trace that the device had no memory for; None where there is none. What is
    freed while the error passes through the program comes behind it."""
    at = next((number for number in reversed(range(len(entries))) if entries[number]["action"] == "oom"), None)
    if at is None:
        return None
    before = sum(one["action"] in KINDS for one in entries[:at])
    ended = [number for number, one in enumerate(ranges) if one.failed]
    return Unmet(before, entries[at]["size"], entries[at].get("device_free"), ended[-1] if ended else None)
