"""The page of one capture: one file that needs no network and has a limited size."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from kernel_tables.attribution.paths import WINDOW
from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.diagnose import Diagnosis, diagnose, silent_by_reason
from kernel_tables.diagnosis.scope import NO_STEP, Scope
from kernel_tables.diagnosis.step_time import step_time
from kernel_tables.page.colors import PHASES
from kernel_tables.page.markup import html_environment, script, style
from kernel_tables.page.step import Leaf, family_of, flame, ms_by, picture
from kernel_tables.page.timeline import Names
from kernel_tables.report import tables
from kernel_tables.report.timeline import capture_timeline, step_leaves, within_room
from kernel_tables.trace import Trace
from kernel_tables.units import CPU_ONLY_NOTE, device_phrase, duration, percent, time_heading

REPORT_FOLDER = Path(__file__).parent
MOST_NAME = 1000  # characters of a full name
STATIC_ROWS = 20  # of a table, before a click shows more
EXPORT_LABELS = {
    "EXPORT_PRODUCT_NAME": "exported by",
    "EXPORT_PRODUCT_VERSION": "version",
    "EXPORT_SCHEMA_VERSION": "schema",
}
MOST_CLASSES = 3


def report(trace: Trace, step_name: str = "step", title: str | None = None) -> str:
    """The page as HTML. Raises ImpossibleCapture, a TraceError, for an impossible capture."""
    scope, names = Scope(trace, step_name), Names()
    leaves = step_leaves(scope)
    in_flame, leaves_left = within_room(leaves)
    time = step_time(scope)
    idle = {name: ns / 1e6 for name, ns in time.idle.items()} if time else {}
    drawn = picture(leaves, time.ns / 1e6 if time else None, idle)
    flames = {"step": flame(in_flame, names, "step" if len(scope.steps) else "capture")}
    under = WINDOW if trace.range_paths.code(WINDOW) != NONE else None
    shown = _tables(scope, trace, under, names)
    bars, bars_left = capture_timeline(scope, names)
    findings = diagnose(scope)
    lists = _lists(names, leaves, findings)
    short = dict(zip(lists["full"], lists["short"], strict=True))
    return html_environment(REPORT_FOLDER).get_template("report.html.j2").render(
        title=title or trace.capture.path.name,
        on_cpu=trace.is_cpu_only,
        of_what=of_what(scope),
        steps=len(scope.steps),
        place=device_phrase(trace.is_cpu_only),
        time_heading=time_heading(trace.is_cpu_only),
        program=program(trace),
        about=about(trace),
        time=time,
        sentences=sentences(scope, leaves, short),
        picture=drawn,
        phases=[bar.name for bar in drawn.bars if bar.name in PHASES],
        findings=[finding for finding in findings if not finding.abstained],
        silent=silent_by_reason(findings),
        checked=trace.check(step_name=step_name),
        of_tables=f"What lies in the range “{WINDOW}”." if under else "All of the capture.",
        tables={table.name: table for table in shown},
        flames=flames,
        flames_left=leaves_left,
        timeline=bars,
        timeline_left=bars_left,
        static_rows=STATIC_ROWS,
        short=short,
        names={kind: tables.cut_names(all_names, MOST_NAME) for kind, all_names in lists.items()},
        facts={label: trace.metadata[key] for key, label in EXPORT_LABELS.items() if key in trace.metadata},
        style=style(REPORT_FOLDER / "report.css"),
        script=script(REPORT_FOLDER / "report.js"),
    )  # fmt: skip


def _tables(scope: Scope, trace: Trace, under: str | None, names: Names) -> list[tables.ReportTable]:
    all_ns = int(trace.classes(under)["total_ns"].sum())
    return [
        tables.ranges(trace, under, all_ns), tables.classes(trace, under, all_ns, names),
        tables.kernels(trace, under, all_ns, names), tables.memory(scope, names), tables.threads(scope),
        tables.streams(scope),
    ]  # fmt: skip


def _lists(names: Names, leaves: Sequence[Leaf], findings: Sequence[Diagnosis]) -> dict[str, list[str]]:
    """The names of everything on the page, with its sentences and findings."""
    for name in (name for finding in findings for name in finding.where.get("kernels", {})):
        names.kernel(name)
    if leaves:
        names.kernel(kernel_with_most_time(leaves))
    return names.as_lists()


def sentences(scope: Scope, leaves: Sequence[Leaf], short: Mapping[str, str]) -> list[str]:
    """The kernel and the classes with the most time, and memory operations."""
    if not leaves:
        return [f"No kernel and no memory operation was recorded in {of_what(scope)}."]
    on_cpu = [f"{CPU_ONLY_NOTE[0].upper()}{CPU_ONLY_NOTE[1:]}."] if scope.trace.is_cpu_only else []
    nothing = f"No range named {scope.step_name!r} holds work: this page is about the whole capture."
    without_steps = [] if len(scope.steps) else [nothing]
    return [*on_cpu, *without_steps, _kernel(leaves, short), _classes(leaves), *_memory(scope)]


def about(trace: Trace) -> list[str]:
    """The GPU, the versions, the steps and the time of the recording, as far as the capture contains them."""
    window = trace.recorded_window
    version = trace.metadata.get("EXPORT_PRODUCT_VERSION", "")
    product = trace.metadata.get("EXPORT_PRODUCT_NAME", "")
    by_torch = trace.metadata.get("CAPTURE_BACKEND") == "torch"
    torch_version = window.get("torch") or (version if by_torch else "")
    began_ns = trace.capture.began_utc_ns()
    first, done = window.get("first"), window.get("done")
    facts = [
        "; ".join(sorted(set(trace.capture.gpus()))) if not trace.is_cpu_only else "CPU",
        f"PyTorch {torch_version}" if torch_version else "",
        "" if by_torch else f"{product} {version}".strip(),
        f"steps {first} to {first + done - 1}" if isinstance(first, int) and isinstance(done, int) and done else "",
        f"{datetime.fromtimestamp(began_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC" if began_ns else "",
    ]
    return [fact for fact in facts if fact]


def program(trace: Trace) -> str:
    """The recorded program's command line; "" if the capture lacks it."""
    return str(trace.recorded_window.get("program", ""))


def of_what(scope: Scope) -> str:
    """ "one step", or "the capture" without steps."""
    return "one step" if len(scope.steps) else "the capture"


def kernel_with_most_time(leaves: Sequence[Leaf]) -> str:
    """The full name of the kernel with the most time among the leaves."""
    times = ms_by(leaves, lambda leaf: leaf.kernel)
    return max(times, key=times.__getitem__)


def _kernel(leaves: Sequence[Leaf], short: Mapping[str, str]) -> str:
    first = kernel_with_most_time(leaves)
    ms = sum(leaf.ms for leaf in leaves if leaf.kernel == first)
    launches = sum(leaf.launches for leaf in leaves if leaf.kernel == first)
    share = ms / max(sum(leaf.ms for leaf in leaves), 1e-12)
    return (
        f"The kernel with the most time is {short[first]}: {duration(1e6 * ms)} ({percent(share)}),"
        f" {f'{launches:,.1f}'.removesuffix('.0')} launch{'' if launches == 1 else 'es'}."
    )


def _classes(leaves: Sequence[Leaf]) -> str:
    times = ms_by(leaves, family_of)
    total_ms = max(sum(times.values()), 1e-12)
    order = sorted(times, key=lambda name: -times[name])[:MOST_CLASSES]
    return "By class: " + ", ".join(f"{name} {percent(times[name] / total_ms)}" for name in order) + "."


def _memory(scope: Scope) -> list[str]:
    in_scope = scope.step != NO_STEP if len(scope.steps) else np.ones(len(scope.activities), bool)
    is_memory = scope.is_memory & in_scope
    if not is_memory.any():
        return []
    ns = int(scope.activities.duration_ns[is_memory].sum()) / scope.step_count
    return [f"Copies and sets of memory take {duration(ns)}, {is_memory.sum() / scope.step_count:,.0f} of them."]
