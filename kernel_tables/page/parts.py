"""What pages are made of: names, the flame graph, the rows of a step's ranges, and Jinja for HTML."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jinja2
from markupsafe import Markup

from kernel_tables.classes import family
from kernel_tables.names import short_names
from kernel_tables.output import as_json, duration, percent, visible
from kernel_tables.tree import Node, longest, tree_of

PHASES = ("forward", "loss", "backward", "optimizer")
LOOKS = (  # of bars, in the order of the legend; style.css has their colours
    *PHASES, "range", "gemm", "attention", "softmax", "normalization", "elementwise", "reduction", "embedding",
    "random", "sort", "communication", "triton-fused", "graph", "memcpy", "memset", "other", "unknown",
)  # fmt: skip
MAX_RANGES = 30  # of a step that are listed; the flame graph has all


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

    def look_of_range(ranges: tuple[str, ...]) -> int:  # that of its phase, which may be called "optimizer (AdamW)"
        phase = ranges[0].partition(" (")[0] if ranges else "unknown"
        return LOOKS.index(phase if phase in (*PHASES, "unknown") else "range")

    index, nodes = {(): 0}, [[-1, names.number(root), 0, 0, LOOKS.index("range")]]
    for leaf in sorted(leaves, key=lambda leaf: look_of_range(leaf.ranges)):
        labels = [(name, names.number(name), look_of_range(leaf.ranges)) for name in leaf.ranges]
        look = family(leaf.kernel_class)
        look = LOOKS.index(look if look in LOOKS[len(PHASES) - 1 :] else "unknown")
        labels.append((f"\0{leaf.kernel}", names.number(leaf.kernel, True), look))
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


def step_rows(
    leaves: Sequence[Leaf], step_ms: float | None = None, idle_ms: Mapping[str, float] | None = None
) -> list[tuple]:
    """Where one step's time goes: the longest ranges with inner ones below outer ones, and the times by name in which
    nothing ran. A row is (depth, label), ms, its share of `step_ms` (of the kernels' time if that is None), launches.
    """
    launched = [
        (leaf.ranges or ("(no range)",), Node(total_ns=round(1e6 * leaf.ms), kernels=leaf.launches)) for leaf in leaves
    ]
    all_ns = 1e6 * step_ms if step_ms else sum(sums.total_ns for _, sums in launched)
    rows = [((node.depth, node.label), node.total_ns, node.kernels) for node in longest(tree_of(launched), MAX_RANGES)]
    rows += [((0, name), round(1e6 * ms), None) for name, ms in (idle_ms or {}).items()]
    return [(label, ns, ns / (all_ns or 1), launches) for label, ns, launches in rows]


def html_environment(*folders: Path) -> jinja2.Environment:
    """Jinja for HTML with the templates of `folders` and of this folder. All text is escaped, with its invisible
    characters; an undefined variable is an error."""
    own = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, own]), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
        finalize=lambda value: visible(value, keep_newlines=True) if type(value) is str else value,  # Markup stays
    )  # fmt: skip
    environment.filters |= {
        # JSON that is safe in a script element, whatever names it contains
        "as_data": lambda value: Markup(as_json(value, indent=None).replace("<", "\\u003c")),
        "ms": lambda ms: duration(1e6 * ms),
        "percent": percent,
        "sentence": lambda text: f"{text[:1].upper()}{text[1:]}.",
    }
    formats = {  # of cells
        "count": lambda count: f"{count:,.{0 if count == int(count) else 1}f}", "time": duration, "share": percent,
    }  # fmt: skip
    style, script = (Markup((own / name).read_text("utf-8")) for name in ("style.css", "page.js"))
    environment.globals |= {"formats": formats, "looks": LOOKS, "style": style, "script": script}
    return environment
