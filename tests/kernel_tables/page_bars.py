"""The bars of a timeline, taken apart again: what a page's script does, in another language."""

from itertools import accumulate


def bars_in(data: dict, full: list[str]) -> list[tuple]:
    """(lane, name, the path around it, begin, length) of each bar in the order of lanes and of time; times in ns."""
    bars, at = [], 0
    for lane, count in zip(data["lanes"], data["count"], strict=True):
        own = slice(at, at + count)
        starts = accumulate(data["gap"][own])
        for start, length, kind in zip(starts, data["length"][own], data["kind"][own], strict=True):
            path = data["path"][kind]
            bars.append((lane, full[data["name"][kind]], None if path is None else full[path], start, length))
        at += count
    assert at == len(data["gap"]) == len(data["length"]) == len(data["kind"])
    return bars
