"""One step on a page: the flame graph of its ranges and kernels, and the picture of its phases and parts."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_tables.kernel_classes.categories import family
from kernel_tables.page.colors import FAMILIES, LOOKS, PLAIN, family_look, in_stacking_order, phase_look, phase_rank
from kernel_tables.page.timeline import Names

NO_PARENT = -1
MAX_PARTS = 7  # of a phase
MIN_SHARE_TO_SPLIT = 0.4  # of the phase: a part with more is replaced by its own parts
MIN_SHARE_OF_PART = 0.02  # of the phase: smaller parts are in OTHERS
MIN_SHARE_OF_REST = 0.001  # of the phase: a smaller NO_RANGE or OTHERS is left out
MIN_SHARE_FOR_COLOR = 0.005  # of the kernels' time: families with less are shown as "other"
NO_RANGE, OTHERS, OUTSIDE, OTHER = "(no inner range)", "others", "outside the phases", "other"


@dataclass(frozen=True, slots=True)
class Leaf:
    """What one kernel takes of a step in one range path."""

    ranges: tuple[str, ...]  # below the step, the phase first; () for no range
    kernel: str
    kernel_class: str
    ms: float
    launches: float


@dataclass(frozen=True)
class Segment:
    """A piece of a bar."""

    name: str
    ms: float
    share: float  # of the bar
    label: str = ""  # the end of the name, if it is a part


@dataclass(frozen=True)
class PhaseBar:
    """The bar of a phase, or of idle time."""

    name: str
    ms: float
    share: float  # of the step; of the kernels' time if that of the step is not known
    length: float  # as a share of the longest bar
    parts: tuple[Segment, ...]
    families: tuple[Segment, ...]
    is_idle: bool = False


@dataclass(frozen=True)
class Picture:
    """Where one step's time goes."""

    bars: tuple[PhaseBar, ...]
    families: tuple[str, ...]  # all that are in the bars, for the legend
    ms: float  # the time of all kernels and memory operations


def ms_by(leaves: Iterable[Leaf], text_of: Callable[[Leaf], str]) -> dict[str, float]:
    """The milliseconds of the leaves by the text that `text_of` returns for them, in the order of its first leaf."""
    times: dict[str, float] = defaultdict(float)
    for leaf in leaves:
        times[text_of(leaf)] += leaf.ms
    return times


def family_of(leaf: Leaf) -> str:
    return family(leaf.kernel_class)


@dataclass
class _RangeNode:
    ms: float = 0.0  # with its children
    children: dict[str, "_RangeNode"] = field(default_factory=dict)


@dataclass(slots=True)
class _FlameNode:
    parent: int
    name: int
    look: int
    ms: float = 0
    launches: float = 0


def flame(leaves: Iterable[Leaf], names: Names, root: str = "step") -> dict[str, list]:
    """The tree of ranges and kernels, in columns: parent (index, -1 for the root), name (its number in `names`), ms,
    launches, look (index in LOOKS). `root` is the name of the root.

    A node's time includes that of its children. Parents precede their children.
    """
    plain = LOOKS.index(PLAIN)
    nodes = {(): _FlameNode(NO_PARENT, names.number(root), plain)}  # by path
    index: dict[tuple[str, ...], int] = {(): 0}
    for leaf in sorted(leaves, key=lambda leaf: phase_rank(leaf.ranges[0]) if leaf.ranges else len(FAMILIES)):
        path = (*leaf.ranges, f"\0{leaf.kernel}")  # a range and a kernel may have the same name
        range_look = phase_look(leaf.ranges[0]) if leaf.ranges else plain
        labels = [(names.number(name), range_look) for name in leaf.ranges]
        labels.append((names.kernel(leaf.kernel), family_look(family_of(leaf))))
        for length, (name, look) in enumerate(labels, 1):
            index.setdefault(path[:length], len(index))
            nodes.setdefault(path[:length], _FlameNode(index[path[: length - 1]], name, look))
        for length in range(len(path) + 1):
            node = nodes[path[:length]]
            node.ms, node.launches = node.ms + leaf.ms, node.launches + leaf.launches
    columns = ("parent", "name", "ms", "launches", "look")
    return {column: [getattr(node, column) for node in nodes.values()] for column in columns}


def picture(
    leaves: Sequence[Leaf], step_ms: float | None = None, idle_ms: Mapping[str, float] | None = None
) -> Picture:
    """The picture of one step: phases in their order, each with its parts and the families of its kernels.

    A bar's share is of `step_ms`; if that is None, of the kernels' time. `idle_ms` are the times by name in which
    nothing ran: each is one more bar.
    """
    phases: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        phases.setdefault(leaf.ranges[0] if leaf.ranges else OUTSIDE, []).append(leaf)
    times = {name: sum(leaf.ms for leaf in phase_leaves) for name, phase_leaves in phases.items()}
    kernels_ms, idle_ms = sum(times.values()), idle_ms or {}
    total_ms, longest_ms = step_ms or kernels_ms, max((*times.values(), *idle_ms.values()), default=0.0)
    families_ms = ms_by(leaves, family_of)
    colored = {name for name, ms in families_ms.items() if ms >= MIN_SHARE_FOR_COLOR * kernels_ms}
    order = sorted(phases, key=lambda name: (name == OUTSIDE, phase_rank(name), -times[name]))
    bars = tuple(
        PhaseBar(
            name, times[name], _share(times[name], total_ms), _share(times[name], longest_ms),
            _parts(phases[name], times[name]), _families(phases[name], times[name], colored),
        )
        for name in order
    )  # fmt: skip
    present = {segment.name for bar in bars for segment in bar.families}
    bars += tuple(
        PhaseBar(name, ms, _share(ms, total_ms), _share(ms, longest_ms), (), (), is_idle=True)
        for name, ms in idle_ms.items()
    )
    return Picture(bars, in_stacking_order(present), kernels_ms)


def _parts(leaves: Iterable[Leaf], total_ms: float) -> tuple[Segment, ...]:
    """The largest parts of a phase, then NO_RANGE (its time in no inner range) and OTHERS (the rest). Parts are the
    ranges directly in it; one that takes much of the phase is replaced by its inner ranges. Empty if no part is
    large."""
    root = _RangeNode()
    for leaf in leaves:
        node = root
        for name in leaf.ranges[1:]:
            node = node.children.setdefault(name, _RangeNode())
            node.ms += leaf.ms
    nodes = dict(root.children)
    direct_ms = total_ms - sum(node.ms for node in nodes.values())
    while len(nodes) < MAX_PARTS:
        largest = max((name for name in nodes if nodes[name].children), key=lambda name: nodes[name].ms, default=None)
        if largest is None or nodes[largest].ms < MIN_SHARE_TO_SPLIT * total_ms:
            break
        split = nodes.pop(largest)
        own_ms = split.ms - sum(child.ms for child in split.children.values())
        for name, child in [*split.children.items(), (largest, _RangeNode(own_ms))]:
            if child.ms > 0:  # parts with the same name are one part, which is not split further
                nodes[name] = _RangeNode(nodes[name].ms + child.ms) if name in nodes else child
    large = {name: node.ms for name, node in nodes.items() if node.ms >= MIN_SHARE_OF_PART * total_ms}
    if not large:
        return ()
    names = sorted(large, key=lambda name: -large[name])[:MAX_PARTS]
    times_ms = [large[name] for name in names]
    for name, ms in ((NO_RANGE, direct_ms), (OTHERS, total_ms - direct_ms - sum(times_ms))):
        if ms > MIN_SHARE_OF_REST * total_ms:
            names, times_ms = [*names, name], [*times_ms, ms]
    parts = zip(names, times_ms, _labels(names), strict=True)
    return tuple(Segment(name, ms, _share(ms, total_ms), label) for name, ms, label in parts)


def _labels(names: Sequence[str]) -> list[str]:
    """The last component of each dotted name; the last two of names that end alike."""
    ends = [name.rpartition(".")[2] or name for name in names]
    return [
        end if ends.count(end) == 1 else ".".join(name.split(".")[-2:]) for name, end in zip(names, ends, strict=True)
    ]


def _families(leaves: Iterable[Leaf], total_ms: float, colored: set[str]) -> tuple[Segment, ...]:
    """The time by family of kernel classes; those that are not in `colored` are one segment, OTHER."""
    times = ms_by(leaves, lambda leaf: family_of(leaf) if family_of(leaf) in colored else OTHER)
    return tuple(Segment(name, times[name], _share(times[name], total_ms)) for name in in_stacking_order(times))


def _share(part_ms: float, total_ms: float) -> float:
    return part_ms / total_ms if total_ms else 0.0
