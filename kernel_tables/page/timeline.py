"""One step on a time axis as a page shows it: lanes of bars, each on what its script reads, and their key."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_tables.attribution.path_text import as_path
from kernel_tables.kernel_classes.categories import family
from kernel_tables.page.colors import FAMILIES, LOOKS, PHASES, PLAIN, family_look, phase_look
from kernel_tables.page.names import Names
from kernel_tables.views.timeline import KERNEL, LAUNCH, RANGE

TITLES = {RANGE: "ranges", LAUNCH: "API calls"}


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A range, a call, or what ran on a device. `lane` sorts, and stands for the lane's `title`; `path` are the ranges
    below the step, its own name last where it is one."""

    lane: tuple
    title: str
    track: str
    name: str
    kernel_class: str
    path: tuple[str, ...]
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeline:
    """What the script reads; the phases of its ranges, and the families of kernel classes, that have colours."""

    data: dict[str, list]
    phases: tuple[str, ...]
    families: tuple[str, ...]


def lane_title(track: str, place: str, level: int = 0) -> str:
    """What a lane is called: its track and its thread, the level below the outermost ranges; or where a kernel ran."""
    title = f"{TITLES[track]}, {place}" if track in TITLES else place
    return title + (f", level {level + 1}" if level else "")


def timeline(bars: Iterable[TimelineBar], names: Names) -> Timeline:
    """The timeline of these bars, in ns from its begin.

    Of each lane the data has its title and how many bars it has; of each bar, lane by lane in the order of time, how
    long after the one before it begins, its length, and what it is: a number in `name`, `path` (numbers of names, the
    path null where there is none) and `look`.
    """
    order = sorted(bars, key=lambda bar: (bar.lane, bar.start_ns))
    lanes: dict[tuple, list] = {}
    kinds: dict[tuple, int] = {}
    gap, length, kind = [], [], []
    for bar in order:
        lane = lanes.setdefault(bar.lane, [bar.title, 0, 0])
        gap.append(bar.start_ns - lane[2])
        length.append(bar.end_ns - bar.start_ns)
        kind.append(kinds.setdefault(_what(bar, names), len(kinds)))
        lane[1:] = lane[1] + 1, bar.start_ns
    name, path, look = (list(column) for column in zip(*kinds, strict=True)) if kinds else ([], [], [])
    titles, count = [lane[0] for lane in lanes.values()], [lane[1] for lane in lanes.values()]
    data = {"lanes": titles, "count": count, "gap": gap, "length": length, "kind": kind}
    phases = {bar.path[0] for bar in order if bar.track == RANGE and bar.path}
    families = {family(bar.kernel_class) for bar in order if bar.track == KERNEL}
    return Timeline(
        data | {"name": name, "path": path, "look": look},
        tuple(phase for phase in PHASES if phase in phases),
        tuple(sorted(families, key=[*FAMILIES, *sorted(families)].index)),
    )


def _what(bar: TimelineBar, names: Names) -> tuple[int, int | None, int]:
    around = bar.path[:-1] if bar.track == RANGE else bar.path
    path = names.number(as_path(around)) if around else None
    if bar.track == KERNEL:
        return names.kernel(bar.name), path, family_look(family(bar.kernel_class))
    is_range = bar.track == RANGE and bool(bar.path)
    return names.number(bar.name), path, phase_look(bar.path[0]) if is_range else LOOKS.index(PLAIN)
