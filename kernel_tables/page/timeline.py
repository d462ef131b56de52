"""One step on a time axis: lanes of bars as data for the page's script, and their key. Each full name stands
on the page once, in one list.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernel_tables.attribution.path_text import as_path
from kernel_tables.kernel_classes.categories import family
from kernel_tables.kernel_names.short import short_names
from kernel_tables.page.colors import FAMILIES, LOOKS, PHASES, PLAIN, family_look, phase_look
from kernel_tables.views.timeline import KERNEL, LAUNCH, RANGE


class Names:
    """Full names, each once, and their numbers: a step has thousands of kernels and dozens of names.

    `reserved` are the short names of kernels in sentences and figures, by full name.
    """

    def __init__(self, reserved: Mapping[str, str] | None = None) -> None:
        self._reserved = dict(reserved or {})
        self._numbers: dict[str, int] = {}
        self._kernels: dict[str, None] = {}

    def number(self, name: str) -> int:
        """The position of the name in `full`."""
        return self._numbers.setdefault(name, len(self._numbers))

    def kernel(self, name: str) -> int:
        """The position in `full` of the name of a kernel, which has a short one."""
        self._kernels[name] = None
        return self.number(name)

    def as_lists(self) -> dict[str, list[str]]:
        """{"full": the names, "short": the names, with the short names of kernels}."""
        short = short_names(self._kernels, self._reserved)
        return {"full": list(self._numbers), "short": [short.get(name, name) for name in self._numbers]}


TITLES = {RANGE: "ranges", LAUNCH: "API calls"}


@dataclass(frozen=True, slots=True)
class TimelineBar:
    """A range, a call, or an activity of a device. Lanes are sorted by `lane` and labelled `title`; `path` are the
    ranges below the step, for a range with its own name last."""

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
    """The data for the script; the phases and the families of kernel classes in the key."""

    data: dict[str, list]
    phases: tuple[str, ...]
    families: tuple[str, ...]


def lane_title(track: str, source: str, level: int = 0) -> str:
    """The title of a lane: track, thread (or device and stream) and level below the outermost ranges."""
    title = f"{TITLES[track]}, {source}" if track in TITLES else source
    return title + (f", level {level + 1}" if level else "")


def timeline(bars: Iterable[TimelineBar], names: Names) -> Timeline:
    """The timeline of these bars, in ns from its start.

    The data has the title and the number of bars of each lane, and for each bar, lane by lane in order of time: the gap
    since the start of the previous bar, its length, and its kind, an index into `name`, `path` (both numbers of names;
    a path may be null) and `look`.
    """
    order = sorted(bars, key=lambda bar: (bar.lane, bar.start_ns))
    lanes: dict[tuple, list] = {}
    kinds: dict[tuple, int] = {}
    gap, length, kind = [], [], []
    for bar in order:
        lane = lanes.setdefault(bar.lane, [bar.title, 0, 0])
        gap.append(bar.start_ns - lane[2])
        length.append(bar.end_ns - bar.start_ns)
        kind.append(kinds.setdefault(_kind(bar, names), len(kinds)))
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


def _kind(bar: TimelineBar, names: Names) -> tuple[int, int | None, int]:
    outer_ranges = bar.path[:-1] if bar.track == RANGE else bar.path
    path = names.number(as_path(outer_ranges)) if outer_ranges else None
    if bar.track == KERNEL:
        return names.kernel(bar.name), path, family_look(family(bar.kernel_class))
    is_range = bar.track == RANGE and bool(bar.path)
    return names.number(bar.name), path, phase_look(bar.path[0]) if is_range else LOOKS.index(PLAIN)
