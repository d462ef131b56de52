"""The page of one capture: one file that needs no network; and what the page of a grid shares with it: the flame graph,
the rows of a step's ranges, and Jinja for HTML."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import jinja2
import numpy as np
from markupsafe import Markup

from kernel_tables.capture import numbered
from kernel_tables.classes import family
from kernel_tables.diagnose import diagnose
from kernel_tables.files import written_whole
from kernel_tables.names import short_names
from kernel_tables.output import as_json, columns_of, duration, percent, visible
from kernel_tables.profile import Profile
from kernel_tables.steps import Scope, step_time
from kernel_tables.text import COLUMNS, CPU_ONLY_NOTE, time_heading
from kernel_tables.tree import COMMUNICATION, Node, longest, readable_name, tree_of, with_phases_as_siblings

MAX_ROWS, MAX_LEAVES, MAX_RANGES = 1000, 3000, 30  # of a table, a flame view, and the list of a step's ranges


class Leaf(NamedTuple):
    """What one kernel takes of a step in one range path."""

    ranges: tuple[str, ...]  # below the step, the phase first; () for no range
    kernel: str
    kernel_class: str
    ms: float
    launches: float


def flame(leaves: Sequence[Leaf], root: str = "step") -> dict[str, list]:
    """The tree of ranges and kernels in columns: parent (index, -1 for the root), name (a number: a step has thousands
    of kernels, but dozens of names), ms, launches, look (a phase, "range", or a class, whose colours style.css has).
    Times include those of children, which come after their parents. By number of a name, `full` is the name, cut to
    1,000 characters, `short` what bars show."""
    looks = ("forward", "loss", "backward", "optimizer", "range")

    def look_of_ranges(leaf: Leaf) -> str:  # that of the phase, which may be called "optimizer (AdamW)"
        phase = leaf.ranges[0].partition(" (")[0] if leaf.ranges else ""
        return phase if phase in looks else "range"

    index, nodes, numbers = {(): 0}, [[-1, 0, 0, 0, "range"]], {root: 0}
    for leaf in sorted(leaves, key=lambda leaf: looks.index(look_of_ranges(leaf))):
        bars = [(name, name, look_of_ranges(leaf)) for name in leaf.ranges]
        bars.append((f"\0{leaf.kernel}", leaf.kernel, family(leaf.kernel_class)))  # may have the name of a range
        path, around = (), [nodes[0]]
        for label, name, look in bars:
            outer, path = index[path], (*path, label)
            if path not in index:
                index[path] = len(nodes)
                nodes.append([outer, numbers.setdefault(name, len(numbers)), 0, 0, look])
            around.append(nodes[index[path]])
        for node in around:
            node[2:4] = node[2] + leaf.ms, node[3] + leaf.launches
    columns = dict(zip(("parent", "name", "ms", "launches", "look"), map(list, zip(*nodes, strict=True)), strict=True))
    full = [f"{name[:999]}…" if name[1000:] else name for name in numbers]
    short = short_names(leaf.kernel for leaf in leaves)
    return columns | {"full": full, "short": [short.get(name, text) for name, text in zip(numbers, full, strict=True)]}


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
    environment.globals |= {"formats": formats, "style": style, "script": script}
    return environment


# The page of a capture


def write_page(profile: Profile, path: Path, step_name: str = "step") -> None:
    """Writes the page to `path`, completely or not at all."""
    scope, window = Scope(profile, step_name), "measure"
    time, leaves, findings, on_cpu = step_time(scope), step_leaves(scope), diagnose(scope), profile.is_cpu_only
    under = window if window in profile.capture.ranges.names else None  # tables are of the window, if there is one
    root = "step" if scope.has_steps else "capture"
    most_small_ms = max(sorted((leaf.ms for leaf in leaves), reverse=True)[MAX_LEAVES:], default=-1)
    small = {"kernel": "(smaller ones)", "kernel_class": "other"}
    shown = [one if one.ms > most_small_ms else one._replace(ranges=one.ranges[:1], **small) for one in leaves]
    idle_ms = {name: ns / 1e6 for name, ns in time.idle_ns.items()} if time else {}
    text = html_environment().get_template("capture.html.j2").render(
        title=profile.capture.path.name, program=str(profile.recorded_window.get("program", "")), scope=scope,
        machine=_describe(profile), on_cpu=on_cpu, cpu_note=CPU_ONLY_NOTE, time=time,
        of_what="one step" if scope.has_steps else "the capture", tables=_tables(profile, under),
        flame=flame(shown, root), small_leaves=sum(one.ms <= most_small_ms for one in leaves),
        rows=step_rows(leaves, time and time.ns / 1e6, idle_ms), short=short_names(scope.activities.names),
        findings=[one for one in findings if not one.abstained],
        unchecked=[one for one in findings if one.abstained], completeness=profile.check(step_name=step_name),
        scope_of_tables=f"What lies in the range “{window}”." if under else "All of the capture.",
    )  # fmt: skip
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _describe(profile: Profile) -> str:
    """The file, the GPU, what recorded it and when, as far as the capture contains them."""
    facts, source = profile.metadata, profile.capture.source
    version, began_ns = facts.get("EXPORT_PRODUCT_VERSION", ""), source.began_utc_ns()
    torch_version = profile.recorded_window.get("torch") or (version if profile.capture.is_torch else "")
    about = [
        profile.capture.path.name,
        "CPU" if profile.is_cpu_only else "; ".join(sorted(set(source.gpus()))),
        f"PyTorch {torch_version}" if torch_version else "",
        "" if profile.capture.is_torch else f"{facts.get('EXPORT_PRODUCT_NAME', '')} {version}".strip(),
        f"{datetime.fromtimestamp(began_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC" if began_ns else "",
    ]
    return " · ".join(filter(None, about))


def _tables(profile: Profile, under: str | None) -> dict[str, tuple]:
    """The tables by name: the kinds of columns by heading, the rows, a sentence on rows that were left out, a title."""
    tables, time = {}, time_heading(profile.is_cpu_only)
    for name in ("classes", "kernels"):
        columns = {heading: (key, kind) for heading, key, kind, *_ in COLUMNS[name] if kind != "bar"}
        values = columns_of(profile.table(name, under))
        all_ns = sum(values["total_ns"]) or 1
        columns["share"], values["share"] = ("share", "share"), [ns / all_ns for ns in values["total_ns"]]
        rows = list(zip(*(values[key] for key, _ in columns.values()), strict=True))
        left_out = len(rows) - MAX_ROWS
        rest = f"{left_out:,} more have no room here; kernel-tables prints all." if left_out > 0 else ""
        kinds = {heading.replace("GPU time", time): kind for heading, (_, kind) in columns.items()}
        tables[name] = kinds, rows[:MAX_ROWS], rest, name.capitalize()
    return tables


def step_leaves(scope: Scope) -> list[Leaf]:
    """The leaves of a step (without steps, of the complete capture). They are means over steps and devices, as the time
    of a step is, so shares of that can be taken."""
    profile, work, rows = scope.profile, scope.activities, np.flatnonzero(scope.is_in_scope)
    count = max(len(work.names), 1)
    keys, group = numbered(profile.attribution.path[rows].astype(np.int64) * count + work.name[rows])
    launches, ns, leaves = np.bincount(group), np.zeros(len(keys), np.int64), []
    step = scope.step_name if scope.has_steps else None  # it, and what is around it, is left out of paths
    inner = [path[path.index(step) + 1 :] if step in path else path for path in profile.paths]
    paths = [(*map(readable_name, path[:1]), *path[1:]) for path in with_phases_as_siblings(inner)]
    np.add.at(ns, group, scope.duration_ns[rows])
    for key, launched, total_ns in zip(keys.tolist(), launches.tolist(), ns.tolist(), strict=True):
        ranges, kernel_class = paths[key // count], profile.activity_classes[key % count]
        if ranges and family(kernel_class) == COMMUNICATION:  # not in the range that happened to start it
            ranges = (ranges[0], COMMUNICATION)
        times = scope.per_step_ms(total_ns), launched / scope.steps_on_devices
        leaves.append(Leaf(ranges, work.names[key % count], kernel_class, *times))
    return leaves
