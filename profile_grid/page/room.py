"""Budgets of bytes: the page stays under 10 MB, however many runs and questions a study has."""

from __future__ import annotations

from collections.abc import Mapping


def fitting(sizes: Mapping[str, int], room: int) -> set[str]:
    """The names of the items that fit into the room together, the smallest first."""
    names, used = set(), 0
    for name in sorted(sizes, key=sizes.__getitem__):
        used += sizes[name]
        if used <= room:
            names.add(name)
    return names


def shared(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """The room divided between the items: equal shares; what a small item does not need goes to the larger ones."""
    shares, remaining = {}, room
    for position, name in enumerate(sorted(sizes, key=sizes.__getitem__)):
        shares[name] = min(sizes[name], remaining // (len(sizes) - position))
        remaining -= shares[name]
    return shares
