"""What pages are made of: the looks of bars, names, the flame graph and the picture of a step, and Jinja for HTML."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from kernel_tables.classes import family
from kernel_tables.names import short_names
from kernel_tables.output import as_json, duration, percent, size, visible

COLORS = {  # for the colour-blind: Okabe & Ito, Color Universal Design, 2008
    "orange": "#E69F00", "sky": "#56B4E9", "green": "#009E73", "yellow": "#F0E442", "blue": "#0072B2",
    "vermillion": "#D55E00", "purple": "#CC79A7", "grey": "#8c8c8c", "pale": "#d9d9d9",
}  # fmt: skip
# The look of a bar: its colour, and the number of lines along it, which tell equal colours apart. Families are in
# stacking order.
FAMILIES = {
    "gemm": ("blue", 0), "attention": ("sky", 1), "softmax": ("vermillion", 2), "normalization": ("green", 1),
    "elementwise": ("orange", 0), "reduction": ("yellow", 0), "optimizer": ("purple", 1), "embedding": ("green", 2),
    "random": ("sky", 2), "sort": ("blue", 2), "communication": ("vermillion", 1), "triton-fused": ("orange", 2),
    "graph": ("purple", 2), "memcpy": ("grey", 0), "memset": ("grey", 2), "other": ("pale", 0), "unknown": ("pale", 2),
}  # fmt: skip
PHASES = {"forward": ("blue", 0), "loss": ("yellow", 0), "backward": ("vermillion", 2), "optimizer": ("purple", 1)}
PLAIN = ("grey", 0)  # of API calls, and of ranges that are not phases
LOOKS = tuple(dict.fromkeys((PLAIN, *PHASES.values(), *FAMILIES.values())))  # all different ones; pages have indices


def look_of(name: str, looks: Mapping[str, tuple] = FAMILIES) -> int:
    """The index in LOOKS of a family of kernels, or of one of PHASES, as "optimizer (AdamW)" is."""
    return LOOKS.index(looks.get(name.partition(" (")[0], looks.get("unknown", PLAIN)))


def rank_of(name: str, looks: Mapping[str, tuple] = FAMILIES) -> int:
    """The position of a family or a phase; others come last."""
    return [*looks, name.partition(" (")[0]].index(name.partition(" (")[0])


class Names:
    """The full names on a page, and their numbers: a step has thousands of kernels, but dozens of names."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._kernels: dict[str, None] = {}

    def number(self, name: str, is_kernel: bool = False) -> int:
        """The number of the name. That of a kernel also gets a short name."""
        if is_kernel:
            self._kernels[name] = None
        return self._numbers.setdefault(name, len(self._numbers))

    def as_lists(self) -> dict[str, list[str]]:
        """{"full": the names, cut to 1,000 characters, "short": the names, with different short ones of kernels}."""
        short, full = short_names(self._kernels), [f"{name[:999]}…" if name[1000:] else name for name in self._numbers]
        return {"full": full, "short": [short.get(name, text) for name, text in zip(self._numbers, full, strict=True)]}


class Leaf(NamedTuple):
    """What one kernel takes of a step in one range path."""

    ranges: tuple[str, ...]  # below the step, the phase first; () for no range
    kernel: str
    kernel_class: str
    ms: float
    launches: float


def flame(leaves: Iterable[Leaf], names: Names, root: str = "step") -> dict[str, list]:
    """The tree of ranges and kernels in columns: parent (index, -1 for the root), name (its number in `names`), ms,
    launches, look (index in LOOKS). Times include those of children, which come after their parents."""
    index, nodes = {(): 0}, [[-1, names.number(root), 0, 0, LOOKS.index(PLAIN)]]
    for leaf in sorted(leaves, key=lambda leaf: rank_of(leaf.ranges[0], PHASES) if leaf.ranges else len(FAMILIES)):
        labels = [(name, names.number(name), look_of(leaf.ranges[0], PHASES)) for name in leaf.ranges]
        labels.append((f"\0{leaf.kernel}", names.number(leaf.kernel, True), look_of(family(leaf.kernel_class))))
        path, around = (), [nodes[0]]  # a range and a kernel may have the same name
        for label, name, look in labels:
            outer, path = index[path], (*path, label)
            if path not in index:
                index[path] = len(nodes)
                nodes.append([outer, name, 0, 0, look])
            around.append(nodes[index[path]])
        for node in around:
            node[2:4] = node[2] + leaf.ms, node[3] + leaf.launches
    return dict(zip(("parent", "name", "ms", "launches", "look"), map(list, zip(*nodes, strict=True)), strict=True))


def picture(
    leaves: Sequence[Leaf], step_ms: float | None = None, idle_ms: Mapping[str, float] | None = None
) -> list[dict]:
    """Where one step's time goes: a bar for each phase, in their order, with its parts and the families of its kernels;
    and one for each of `idle_ms`, the times by name in which nothing ran.

    The share of a bar is of `step_ms` (of the kernels' time if that is None), its length of the longest bar.
    """
    phases: dict[str, list[Leaf]] = {}
    outside, idle_ms, families, bars = "outside the phases", idle_ms or {}, Counter(), []
    for leaf in leaves:
        phases.setdefault(leaf.ranges[0] if leaf.ranges else outside, []).append(leaf)
        families[family(leaf.kernel_class)] += leaf.ms
    times = {name: sum(leaf.ms for leaf in of_phase) for name, of_phase in phases.items()}
    order = sorted(phases, key=lambda name: (name == outside, rank_of(name, PHASES), -times[name]))
    total_ms, longest_ms = step_ms or families.total() or 1, max((*times.values(), *idle_ms.values()), default=0) or 1
    rows = [(name, times[name], phases[name]) for name in order] + [(name, ms, ()) for name, ms in idle_ms.items()]
    for name, ms, of_phase in rows:
        strip = Counter()
        for leaf in of_phase:
            one = family(leaf.kernel_class)
            strip[one if families[one] >= 0.005 * families.total() else "other"] += leaf.ms
        in_order = sorted(strip, key=rank_of)
        shares = [{"name": one, "ms": strip[one], "share": strip[one] / (ms or 1)} for one in in_order]
        bar = {"name": name, "ms": ms, "share": ms / total_ms, "length": ms / longest_ms, "is_idle": not of_phase}
        bars.append(bar | {"parts": _parts(of_phase, ms), "families": shares})
    return bars


def _parts(leaves: Iterable[Leaf], total_ms: float) -> list[dict]:
    """The largest parts of a phase, then its time in no inner range and the rest; empty if no part is large. Parts are
    the ranges directly in it; one that takes much of the phase is replaced by its inner ranges."""
    most, times, children, parts = 7, Counter(), {}, Counter()
    for leaf in leaves:
        for depth in range(2, len(leaf.ranges) + 1):
            times[leaf.ranges[:depth]] += leaf.ms
            children.setdefault(leaf.ranges[: depth - 1], {})[leaf.ranges[:depth]] = None
    shown = {path: times[path] for path in next(iter(children.values()), ())}
    direct_ms = total_ms - sum(shown.values())
    while len(shown) < most:
        largest = max((path for path in shown if path in children), key=shown.get, default=None)
        if largest is None or shown[largest] < 0.4 * total_ms:
            break
        inner = {path: times[path] for path in children[largest]}
        inner[*largest, None, largest[-1]] = shown.pop(largest) - sum(inner.values())  # its own time
        shown |= {path: ms for path, ms in inner.items() if ms > 0}
    for path, ms in shown.items():  # parts with the same name are one part
        parts[path[-1]] += ms
    large = [(name, ms) for name, ms in parts.most_common(most) if ms > 0 and ms >= 0.02 * total_ms]
    rest = (("(no inner range)", direct_ms), ("others", total_ms - direct_ms - sum(ms for _, ms in large)))
    large += [(name, ms) for name, ms in rest if large and ms > 0.001 * total_ms]
    ends = [name.rpartition(".")[2] or name for name, _ in large]  # as labels; two components of names that end alike
    ends = [end if ends.count(end) == 1 else ".".join(large[i][0].split(".")[-2:]) for i, end in enumerate(ends)]
    shares = [{"name": name, "ms": ms, "share": ms / total_ms} for name, ms in large]
    return [part | {"label": end} for part, end in zip(shares, ends, strict=True)]


def html_environment(*folders: Path) -> jinja2.Environment:
    """Jinja for HTML with the templates of `folders` and of this folder. All text is escaped, with its invisible
    characters; an undefined variable is an error."""
    own, lines = Path(__file__).parent, ((), ((0.73, 0.84),), ((0.16, 0.27), (0.73, 0.84)))  # shares of a bar's height

    def background(look: int) -> str:
        color, count = LOOKS[look]
        stops = [f"transparent {a:.0%}, var(--ground) {a:.0%} {b:.0%}, transparent {b:.0%}" for a, b in lines[count]]
        return f"linear-gradient({', '.join(stops)}) {COLORS[color]}" if stops else COLORS[color]

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, own]), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: visible(value, keep_newlines=True) if type(value) is str else value,  # Markup stays
    )  # fmt: skip
    environment.filters |= {
        # JSON that is safe in a script element, whatever names it contains
        "as_data": lambda value: Markup(as_json(value, indent=None).replace("<", "\\u003c")),
        "background": lambda name, looks=FAMILIES: background(look_of(name, looks)),
        "in_order": lambda names: sorted(set(names), key=rank_of),
        "ms": lambda ms: duration(1e6 * ms),
        "percent": percent,
        "sentence": lambda text: f"{text[:1].upper()}{text[1:]}.",
    }
    formats = {"count": "{:,}".format, "time": duration, "share": percent, "size": size}  # of cells
    formats["rate"] = lambda rate: f"{rate:,{'.0f' if rate >= 100 else '.3g'}} GB/s"  # bytes per nanosecond
    on_dark = ("blue", "vermillion", "green")  # text on these is white
    looks = [[COLORS[one], lines[count], one in on_dark, background(i)] for i, (one, count) in enumerate(LOOKS)]
    style, script = (Markup((own / name).read_text("utf-8")) for name in ("style.css", "page.js"))
    environment.globals |= {"formats": formats, "looks": looks, "phase_looks": PHASES, "style": style, "script": script}
    return environment
