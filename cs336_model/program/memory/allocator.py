"""The recorder on a GPU: the history of PyTorch's caching allocator, and its counters at both ends of every range.

The backward pass runs in its own thread, so no label of a thread tells the range of an allocation. The number of
allocations and releases that the allocator has counted when a range opens and closes does, to the event.
"""

from collections.abc import Callable
from pathlib import PurePath
from typing import Any

import torch

from cs336_model.program.memory.history import AllocatorEvent, AllocatorRecording, FailedAllocation, RecordedRange

IN_PACKAGES = ("site-packages", "dist-packages")
FRAME_KEYS = ("name", "line")
ENTRY_KEYS = ("action", "addr", "size", "stream", "time_us", "device_free", "pool_id", "segment_pool_id", "version")
SEGMENT_KEYS = (
    "device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream", "segment_type",
    "segment_pool_id", "is_expandable",
)  # fmt: skip
BLOCK_KEYS = ("address", "size", "requested_size", "state")


def publishable(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A copy with what pytorch.org/memory_viz draws, and no path of this machine. Other keys are left out, such as
    settings and annotations."""
    return {
        "segments": [
            _chosen(SEGMENT_KEYS, segment)
            | {"blocks": [_with_frames(BLOCK_KEYS, block) for block in segment["blocks"]]}
            for segment in snapshot["segments"]
        ],
        "device_traces": [[_with_frames(ENTRY_KEYS, entry) for entry in trace] for trace in snapshot["device_traces"]],
    }


def published_path(file: str) -> str:
    """The path of a source file below the folder from which it was imported: "cs336_model/model/transformer.py",
    "torch/nn/modules/module.py"; for any other file only its name."""
    parts = PurePath(file).parts
    for folder in IN_PACKAGES:
        if folder in parts:
            return "/".join(parts[parts.index(folder) + 1 :])
    if "cs336_model" in parts:
        last = len(parts) - 1 - parts[::-1].index("cs336_model")
        return "/".join(parts[last:])
    return parts[-1] if parts else ""


def _with_frames(keys: tuple[str, ...], entry: dict[str, Any]) -> dict[str, Any]:
    frames = [
        _chosen(FRAME_KEYS, frame) | {"filename": published_path(frame["filename"])}
        for frame in entry.get("frames", ())
    ]
    return _chosen(keys, entry) | {"frames": frames}


def _chosen(keys: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


REQUESTED, ALLOCATED, RESERVED = (f"{name}_bytes.all.peak" for name in ("requested", "allocated", "reserved"))
KINDS = {"alloc": True, "free_completed": False}  # the entries that are events, and whether they allocate
CANNOT = ["what NCCL and the CUDA context take is in no history of the allocator; the driver's figure holds it"]


class AllocatorMemory:
    """Records until `ended` is called."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._ranges, self._open = device, [], []
        torch.cuda.init()
        self._before = self._event_count()
        torch.cuda.memory._record_memory_history(stacks="python", context="alloc")
        self._snapshot: dict[str, Any] = {}

    def emitter(self, name: str) -> "MarkedRange":
        """A range of this name that records its ends."""
        return MarkedRange(name, self._ranges, self._open, lambda: self._event_count() - self._before)

    def ended(self, held: dict[str, list[int]]) -> AllocatorRecording:
        """Everything since the beginning."""
        stats = torch.cuda.memory_stats(self._device)
        free, total = torch.cuda.mem_get_info(self._device)
        self._snapshot = torch.cuda.memory._snapshot(self._device)
        torch.cuda.memory._record_memory_history(None)
        trace = self._snapshot["device_traces"][self._device.index]
        counters = {
            "requested_peak": stats[REQUESTED], "allocated_peak": stats[ALLOCATED], "reserved_peak": stats[RESERVED],
            "driver_used": total - free,
        }  # fmt: skip
        return AllocatorRecording(
            events_of_trace(trace), self._ranges, held, counters, CANNOT, unmet_in(trace, self._ranges)
        )

    def snapshot(self) -> dict[str, Any]:
        """The publishable snapshot for pytorch.org/memory_viz."""
        return publishable(self._snapshot)

    def _event_count(self) -> int:
        """The number of allocations and completed releases since the process began, which is that of the next event."""
        stats = torch.cuda.memory_stats_as_nested_dict(self._device)
        return stats["allocation"]["all"]["allocated"] + stats["active"]["all"]["freed"]


class MarkedRange:
    """A range that records the number of events when it opened and when it closed."""

    __slots__ = ("_name", "_number", "_open", "_position", "_ranges")

    def __init__(self, name: str, ranges: list[RecordedRange], opened: list[int], position: Callable[[], int]) -> None:
        self._name, self._ranges, self._open, self._position = name, ranges, opened, position

    def __enter__(self) -> None:
        self._number = len(self._ranges)
        self._ranges.append(RecordedRange(self._name, self._open[-1] if self._open else None, self._position()))
        self._open.append(self._number)

    def __exit__(self, *error: object) -> None:
        self._ranges[self._number].closed, self._ranges[self._number].failed = self._position(), error[0] is not None
        self._open.remove(self._number)


def events_of_trace(entries: list[dict[str, Any]]) -> list[AllocatorEvent]:
    """The allocations and completed releases among the entries of an allocator's trace; a release counts when it is
    completed, as in `requested_bytes`."""
    return [
        AllocatorEvent(KINDS[entry["action"]], entry["addr"], entry["size"], entry["time_us"])
        for entry in entries
        if entry["action"] in KINDS
    ]


def unmet_in(entries: list[dict[str, Any]], ranges: list[RecordedRange]) -> FailedAllocation | None:
    """The last failed request in an allocator's trace; None if there is none. It is followed by what is freed while the
    error passes through the program."""
    index = next((index for index in reversed(range(len(entries))) if entries[index]["action"] == "oom"), None)
    if index is None:
        return None
    before = sum(entry["action"] in KINDS for entry in entries[:index])
    ended = [number for number, span in enumerate(ranges) if span.failed]
    request = entries[index]
    return FailedAllocation(before, request["size"], request.get("device_free"), ended[-1] if ended else None)
