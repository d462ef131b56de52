"""The page of one capture: one file that needs no network and has a limited size."""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from kernel_tables.capture import numbered
from kernel_tables.classes import family
from kernel_tables.diagnose import abstained_by_reason, diagnose
from kernel_tables.files import written_whole
from kernel_tables.names import short_names
from kernel_tables.output import columns_of
from kernel_tables.page import parts
from kernel_tables.page.parts import Leaf, Names
from kernel_tables.profile import Profile
from kernel_tables.steps import Scope, step_time
from kernel_tables.text import CPU_ONLY_NOTE, time_heading
from kernel_tables.tree import COMMUNICATION, readable_name, with_phases_as_siblings

MAX_ROWS, MAX_LEAVES = 1000, 3000  # of a table and a flame graph
TABLES = {  # by name the headings, with the column and its kind
    "classes": {
        "class": ("class", "text"), "kernels": ("kernels", "count"), "launches": ("launches", "count"),
        "GPU time": ("total_ns", "time"), "share": ("share", "share"), "most time in": ("largest_kernel", "kernel"),
    },
    "kernels": {
        "kernel": ("kernel", "kernel"), "launches": ("launches", "count"), "GPU time": ("total_ns", "time"),
        "share": ("share", "share"), "mean": ("mean_ns", "time"), "min": ("min_ns", "time"), "max": ("max_ns", "time"),
        "class": ("class", "text"), "range": ("range", "path"),
    },
}  # fmt: skip


def write_page(profile: Profile, path: Path, step_name: str = "step") -> None:
    """Writes the page to `path`, completely or not at all."""
    scope, names, window = Scope(profile, step_name), Names(), "measure"
    time, leaves, findings, on_cpu = step_time(scope), step_leaves(scope), diagnose(scope), profile.is_cpu_only
    under = window if window in profile.capture.ranges.names else None  # tables are of the window, if there is one
    most_small_ms = max(sorted((leaf.ms for leaf in leaves), reverse=True)[MAX_LEAVES:], default=-1)
    small = {"kernel": "(smaller ones)", "kernel_class": "other"}
    shown = [one if one.ms > most_small_ms else one._replace(ranges=one.ranges[:1], **small) for one in leaves]
    root = "step" if scope.has_steps else "capture"
    idle_ms = {name: ns / 1e6 for name, ns in time.idle_ns.items()} if time else {}
    text = parts.html_environment().get_template("capture.html.j2").render(
        title=profile.capture.path.name, program=str(profile.recorded_window.get("program", "")), scope=scope,
        machine=_describe(profile), on_cpu=on_cpu, cpu_note=CPU_ONLY_NOTE, time=time,
        of_what="one step" if scope.has_steps else "the capture", names_of=names.as_lists,
        tables=_tables(profile, under),
        flames={"step": parts.flame(shown, names, root)}, small_leaves=sum(one.ms <= most_small_ms for one in leaves),
        rows=parts.step_rows(leaves, time and time.ns / 1e6, idle_ms), short=short_names(scope.activities.names),
        findings=[finding for finding in findings if not finding.abstained], unchecked=abstained_by_reason(findings),
        completeness=profile.check(step_name=step_name),
        scope_of_tables=f"What lies in the range “{window}”." if under else "All of the capture.",
    )  # fmt: skip
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def _describe(profile: Profile) -> str:
    """The file, the GPU, versions, steps and the time of the recording, as far as the capture contains them."""
    window, facts, source = profile.recorded_window, profile.metadata, profile.capture.source
    version, began_ns = facts.get("EXPORT_PRODUCT_VERSION", ""), source.began_utc_ns()
    torch_version = window.get("torch") or (version if profile.capture.is_torch else "")
    first, done = window.get("first"), window.get("done")  # the number of the first step, and how many were recorded
    about = [profile.capture.path.name, "CPU" if profile.is_cpu_only else "; ".join(sorted(set(source.gpus())))]
    about += [f"PyTorch {torch_version}"] if torch_version else []
    about += [] if profile.capture.is_torch else [f"{facts.get('EXPORT_PRODUCT_NAME', '')} {version}".strip()]
    is_counted = isinstance(first, int) and isinstance(done, int) and done
    about += [f"steps {first} to {first + done - 1}"] if is_counted else []
    about += [f"{datetime.fromtimestamp(began_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC"] if began_ns else []
    return " · ".join(filter(None, about))


def _tables(profile: Profile, under: str | None) -> dict[str, tuple]:
    """The tables by name: the kinds of columns by heading, the rows, a sentence on rows that were left out, a title."""
    tables, time = {}, time_heading(profile.is_cpu_only)
    for name, columns in TABLES.items():
        values = columns_of(profile.table(name, under))
        all_ns = sum(values["total_ns"]) or 1
        values["share"] = [ns / all_ns for ns in values["total_ns"]]
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
    launches, ns, paths, leaves = np.bincount(group), np.zeros(len(keys), np.int64), _with_phases(scope), []
    np.add.at(ns, group, scope.duration_ns[rows])
    for key, launched, total_ns in zip(keys.tolist(), launches.tolist(), ns.tolist(), strict=True):
        ranges, kernel_class = paths[key // count], profile.activity_classes[key % count]
        if ranges and family(kernel_class) == COMMUNICATION:  # not in the range that happened to start it
            ranges = (ranges[0], COMMUNICATION)
        times = scope.per_step_ms(total_ns), launched / scope.steps_on_devices
        leaves.append(Leaf(ranges, work.names[key % count], kernel_class, *times))
    return leaves


def _with_phases(scope: Scope) -> list[tuple[str, ...]]:
    """The paths without the step and what is around it. Each begins with its phase, as in tree.py."""
    step = scope.step_name if scope.has_steps else None
    inner = [path[path.index(step) + 1 :] if step in path else path for path in scope.profile.paths]
    return [(*map(readable_name, path[:1]), *path[1:]) for path in with_phases_as_siblings(inner)]
