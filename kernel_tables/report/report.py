"""The page of one capture: one file that needs no network and has a limited size."""

from collections.abc import Sequence
from pathlib import Path

from kernel_tables.attribution.paths import WINDOW
from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.diagnose import Diagnosis, diagnose, silent_by_reason
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.diagnosis.step_time import step_time
from kernel_tables.page.colors import PHASES
from kernel_tables.page.markup import html_environment, script, style
from kernel_tables.page.names import Names
from kernel_tables.page.step import Leaf, flame, picture
from kernel_tables.report import summary, tables
from kernel_tables.report.leaves import step_leaves, within_room
from kernel_tables.report.timeline import capture_timeline
from kernel_tables.trace import Trace
from kernel_tables.units import device_phrase, time_heading

REPORT_FOLDER = Path(__file__).parent
MOST_NAME = 1000  # characters of a full name
STATIC_ROWS = 20  # of a table, before a click shows more
EXPORT_LABELS = {
    "EXPORT_PRODUCT_NAME": "exported by",
    "EXPORT_PRODUCT_VERSION": "version",
    "EXPORT_SCHEMA_VERSION": "schema",
}


def report(trace: Trace, step_name: str = "step", title: str | None = None) -> str:
    """The page as HTML. Raises ImpossibleCapture, a TraceError, for a capture that cannot be believed."""
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
    findings = diagnose(trace, step_name)
    lists = _lists(names, leaves, findings)
    short = dict(zip(lists["full"], lists["short"], strict=True))
    return html_environment(REPORT_FOLDER).get_template("report.html.j2").render(
        title=title or trace.capture.path.name,
        on_cpu=trace.is_cpu_only,
        of_what=summary.of_what(scope),
        steps=len(scope.steps),
        place=device_phrase(trace.is_cpu_only),
        time_heading=time_heading(trace.is_cpu_only),
        program=summary.program(trace),
        about=summary.about(trace),
        time=time,
        sentences=summary.sentences(scope, leaves, short),
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
        names.kernel(summary.kernel_with_most_time(leaves))
    return names.as_lists()
