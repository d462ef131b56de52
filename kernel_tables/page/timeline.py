"""One step on a time axis: lanes of bars as data for the page's script, and what their legend shows; and the list of
all names on a page, in which each occurs once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

from kernel_tables.attribution.path_text import as_path
from kernel_tables.kernel_classes.categories import family
from kernel_tables.kernel_names.short import short_names
from kernel_tables.page.colors import LOOKS, PHASES, PLAIN, family_look, in_stacking_order, phase_look
from kernel_tables.views.timeline import KERNEL, LAUNCH, RANGE

TRACK_TITLES = {RANGE: "ranges", LAUNCH: "API calls"}


class Names:
    """The full names on a page, and their numbers: a step has thousands of kernels, but dozens of names.

    `reserved` are the short names of kernels that sentences and figures use already, by full name.
    """

    def __init__(self, reserved: Mapping[str, str] | None = None) -> None:
        self._reserved = dict(reserved or {})
        self._numbers: dict[str, int] = {}
        self._kernels: dict[str, None] = {}  # an ordered set

    def number(self, name: str) -> int:
        """The number of the name: its index in the lists."""
        return self._numbers.setdefault(name, len(self._numbers))

    def kernel(self, name: str) -> int:
        """The number of the name of a kernel, which also gets a short name."""
        self._kernels[name] = None
        return self.number(name)

    def as_lists(self) -> dict[str, list[str]]:
        """{"full": the names, "short": the names, with the short names of kernels}."""
        short = short_names(self._kernels, self._reserved)
        return {"full": list(self._numbers), "short": [short.get(name, name) for name in self._numbers]}


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A range, a call, or an activity of a device."""

    lane: tuple  # the sort key of its lane; bars with the same key are in one lane
    title: str  # of its lane
    track: str  # one of TRACKS in views/timeline.py
    name: str
    kernel_class: str  # "" unless it is an activity
    path: tuple[str, ...]  # the ranges around it, below the step; for a range, with its own name
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Timeline:
    """The data for the script, and the phases and families of kernel classes for the legend."""

    data: dict[str, list]
    phases: tuple[str, ...]
    families: tuple[str, ...]


def lane_title(track: str, source: str, level: int = 0) -> str:
    """The title of a lane: its track, its source (a thread, or device and stream), and the level of its ranges."""
    title = f"{TRACK_TITLES[track]}, {source}" if track in TRACK_TITLES else source
    return title + (f", level {level + 1}" if level else "")


def timeline(bars: Iterable[TimelineBar], names: Names) -> Timeline:
    """The timeline of these bars, in ns from its start. Its data are columns:

    - of lanes: `lanes` (their titles) and `count` (of bars);
    - of bars, lane by lane in order of time: `gap` (from the start of the previous bar of the lane), `length`, and
      `kind` (index into the next columns);
    - of kinds: `name` and `path` (numbers of names; a path may be null), and `look`.
    """
    order = sorted(bars, key=lambda bar: (bar.lane, bar.start_ns))
    data: dict[str, list] = {key: [] for key in ("lanes", "count", "gap", "length", "kind", "name", "path", "look")}
    kinds: dict[tuple, int] = {}
    for _, lane in groupby(order, attrgetter("lane")):
        lane_bars, previous_ns = list(lane), 0  # the first gap is from the start of the timeline
        data["lanes"].append(lane_bars[0].title)
        data["count"].append(len(lane_bars))
        for bar in lane_bars:
            data["gap"].append(bar.start_ns - previous_ns)
            data["length"].append(bar.end_ns - bar.start_ns)
            data["kind"].append(kinds.setdefault(_kind(bar, names), len(kinds)))
            previous_ns = bar.start_ns
    data["name"], data["path"], data["look"] = map(list, zip(*kinds, strict=True)) if kinds else ([], [], [])
    phases = {bar.path[0] for bar in order if bar.track == RANGE and bar.path}
    families = {family(bar.kernel_class) for bar in order if bar.track == KERNEL}
    return Timeline(data, tuple(phase for phase in PHASES if phase in phases), in_stacking_order(families))


def _kind(bar: TimelineBar, names: Names) -> tuple[int, int | None, int]:
    """The name, the path and the look of a bar, as numbers. The path is that of the ranges around it."""
    outer_ranges = bar.path[:-1] if bar.track == RANGE else bar.path
    path = names.number(as_path(outer_ranges)) if outer_ranges else None
    if bar.track == KERNEL:
        return names.kernel(bar.name), path, family_look(family(bar.kernel_class))
    is_range = bar.track == RANGE and bool(bar.path)
    return names.number(bar.name), path, phase_look(bar.path[0]) if is_range else LOOKS.index(PLAIN)
