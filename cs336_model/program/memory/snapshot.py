"""A snapshot of the allocator as it may be published: stacks name files below the project or a package. No torch."""

from pathlib import PurePath
from typing import Any

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
