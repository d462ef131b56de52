"""What has room on the page: it is to stay under 10 MB, however many runs and questions a study has."""

from __future__ import annotations

from collections.abc import Mapping


def fitting(sizes: Mapping[str, int], room: int) -> set[str]:
    """The names of what fits into so much room, the smallest first."""
    names, used = set(), 0
    for name in sorted(sizes, key=sizes.__getitem__):
        used += sizes[name]
        if used <= room:
            names.add(name)
    return names


def shared(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """How much of the room each may take: all alike, and what a small one does not need goes to the larger."""
    shares, remaining = {}, room
    for position, name in enumerate(sorted(sizes, key=sizes.__getitem__)):
        shares[name] = min(sizes[name], remaining // (len(sizes) - position))
        remaining -= shares[name]
    return shares
