"""One step as a page shows it: its ranges by path with kernels as leaves, and the picture of its phases and parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_tables.kernel_classes.categories import family
from kernel_tables.page.colors import FAMILIES, LOOKS, PLAIN, family_look, phase_look, phase_rank
from kernel_tables.page.names import Names

NO_PARENT = -1
MOST_PARTS = 7  # of a phase
WORTH_SPLITTING = 0.4  # of its phase: a part that takes more is shown by its own parts
WORTH_SHOWING, WORTH_TELLING = 0.02, 0.001
WORTH_A_COLOR = 0.005  # of the step: less is told as "other"
NO_RANGE, OTHERS, OUTSIDE, OTHER = "(no inner range)", "others", "outside the phases", "other"


@dataclass(frozen=True, slots=True)
class Leaf:
    """What one kernel takes of one step within a range path, the phase first: () for none."""

    ranges: tuple[str, ...]
    kernel: str
    kernel_class: str
    ms: float
    launches: float


@dataclass(frozen=True)
class Segment:
    """A piece of a bar: its name, milliseconds, share of the bar, and the name as it fits into the bar."""

    name: str
    ms: float
    share: float
    label: str = ""


@dataclass(frozen=True)
class PhaseBar:
    """A phase: its time, its share of the step, the length of its bar as a share of the longest, what it holds."""

    name: str
    ms: float
    share: float
    length: float
    parts: tuple[Segment, ...]
    families: tuple[Segment, ...]
    is_idle: bool = False


@dataclass(frozen=True)
class Picture:
    """Where one step's time goes: a bar per phase, the families that occur, ms of all kernels and memory operations."""

    bars: tuple[PhaseBar, ...]
    families: tuple[str, ...]
    ms: float


@dataclass
class _Node:
    ms: float = 0.0
    children: dict[str, _Node] = field(default_factory=dict)


def flame(leaves: Iterable[Leaf], names: Names, root: str = "step") -> dict[str, list]:
    """The nodes of the step that these leaves make: parent (position, -1 for the step), name (number), ms, launches,
    look.

    A node's time holds that of its children. Parents stand before their children.
    """
    plain = LOOKS.index(PLAIN)
    nodes: dict[tuple[str, ...], list] = {(): [NO_PARENT, names.number(root), 0, 0, plain]}
    place = {(): 0}
    for one in sorted(leaves, key=lambda one: phase_rank(one.ranges[0]) if one.ranges else len(FAMILIES)):
        path = (*one.ranges, f"\0{one.kernel}")  # a range and a kernel may bear the same name
        look = phase_look(one.ranges[0]) if one.ranges else plain
        shown = [(names.number(name), look) for name in one.ranges]
        shown.append((names.kernel(one.kernel), family_look(family(one.kernel_class))))
        for length, (number, look) in enumerate(shown, 1):
            place.setdefault(path[:length], len(place))
            nodes.setdefault(path[:length], [place[path[: length - 1]], number, 0, 0, look])
        for length in range(len(path) + 1):
            nodes[path[:length]][2] += one.ms
            nodes[path[:length]][3] += one.launches
    columns = zip(*nodes.values(), strict=True)
    return dict(zip(("parent", "name", "ms", "launches", "look"), map(list, columns), strict=True))


def picture(leaves: Sequence[Leaf], step_ms: float | None = None, idle: Mapping[str, float] | None = None) -> Picture:
    """The picture of one step: phases in their order, each with its parts and the families of its kernels.

    Shares are of STEP_MS, or of the kernels' time. IDLE is what else the step's time went to, in ms, a bar each.
    """
    phases: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        phases.setdefault(leaf.ranges[0] if leaf.ranges else OUTSIDE, []).append(leaf)
    times = {name: sum(leaf.ms for leaf in own) for name, own in phases.items()}
    kernels_ms, idle = sum(times.values()), idle or {}
    whole, longest = step_ms or kernels_ms, max((*times.values(), *idle.values()), default=0.0)
    known = _worth_telling(leaves, kernels_ms)
    order = sorted(phases, key=lambda name: (name == OUTSIDE, phase_rank(name), -times[name]))
    bars = tuple(
        PhaseBar(
            name, times[name], _share(times[name], whole), _share(times[name], longest),
            _parts(phases[name], times[name]), _families(phases[name], times[name], known),
        )
        for name in order
    )  # fmt: skip
    present = {segment.name for bar in bars for segment in bar.families}
    bars += tuple(PhaseBar(name, ms, _share(ms, whole), _share(ms, longest), (), (), True) for name, ms in idle.items())
    return Picture(bars, _in_order(present), kernels_ms)


def _parts(leaves: Iterable[Leaf], whole: float) -> tuple[Segment, ...]:
    """The parts of a phase: the ranges directly in it, and of one that takes much of it those directly in that."""
    root = _Node()
    for leaf in leaves:
        node = root
        for name in leaf.ranges[1:]:
            node = node.children.setdefault(name, _Node())
            node.ms += leaf.ms
    found = dict(root.children)
    direct = whole - sum(node.ms for node in found.values())
    while len(found) < MOST_PARTS:
        largest = max((name for name in found if found[name].children), key=lambda name: found[name].ms, default=None)
        if largest is None or found[largest].ms < WORTH_SPLITTING * whole:
            break
        node = found.pop(largest)
        own = node.ms - sum(child.ms for child in node.children.values())
        for name, child in node.children.items():
            if name in found:
                found[name] = _Node(found[name].ms + child.ms)
            else:
                found[name] = child
        if own > 0:
            found[largest] = _Node(found[largest].ms + own if largest in found else own)
    told = ((name, node.ms) for name, node in found.items() if node.ms >= WORTH_SHOWING * whole)
    parts = sorted(told, key=lambda part: -part[1])[:MOST_PARTS]
    rest = whole - direct - sum(ms for _, ms in parts)
    parts += [(name, ms) for name, ms in ((NO_RANGE, direct), (OTHERS, rest)) if parts and ms > WORTH_TELLING * whole]
    labels = _labels([name for name, _ in parts])
    return tuple(Segment(name, ms, _share(ms, whole), label) for (name, ms), label in zip(parts, labels, strict=True))


def _labels(names: Sequence[str]) -> list[str]:
    """The ends of dotted names, as long as they have to be to differ."""
    ends = [name.rpartition(".")[2] or name for name in names]
    return [
        end if ends.count(end) == 1 else ".".join(name.split(".")[-2:]) for name, end in zip(names, ends, strict=True)
    ]


def _worth_telling(leaves: Iterable[Leaf], whole: float) -> set[str]:
    """The families of kernel classes that take enough of a step to have a colour of their own."""
    times: dict[str, float] = {}
    for leaf in leaves:
        times[family(leaf.kernel_class)] = times.get(family(leaf.kernel_class), 0.0) + leaf.ms
    return {name for name, ms in times.items() if ms >= WORTH_A_COLOR * whole}


def _families(leaves: Iterable[Leaf], whole: float, known: set[str]) -> tuple[Segment, ...]:
    times: dict[str, float] = {}
    for leaf in leaves:
        name = family(leaf.kernel_class) if family(leaf.kernel_class) in known else OTHER
        times[name] = times.get(name, 0.0) + leaf.ms
    return tuple(Segment(name, times[name], _share(times[name], whole)) for name in _in_order(times))


def _in_order(families: Iterable[str]) -> tuple[str, ...]:
    order = list(FAMILIES)
    return tuple(sorted(families, key=lambda name: (order.index(name) if name in order else len(order), name)))


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
