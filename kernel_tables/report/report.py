"""The page of one capture: one file that needs no network and has a limited size."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from kernel_tables.attribution.paths import WINDOW
from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.diagnose import Diagnosis, abstained_by_reason, diagnose
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.diagnosis.step_time import step_time
from kernel_tables.page.colors import PHASES
from kernel_tables.page.markup import html_environment, script, style
from kernel_tables.page.step import Leaf, family_of, flame, ms_by, picture
from kernel_tables.page.timeline import Names
from kernel_tables.report import tables
from kernel_tables.report.timeline import capture_timeline, largest_leaves, step_leaves
from kernel_tables.trace import Trace
from kernel_tables.units import CPU_ONLY_NOTE, device_phrase, duration, percent, time_heading

REPORT_FOLDER = Path(__file__).parent
MAX_NAME_CHARS = 1000  # characters of a full name; the rest is cut
STATIC_ROWS = 20  # of a table, before a click shows more
EXPORT_LABELS = {  # of the capture's metadata, on the page
    "EXPORT_PRODUCT_NAME": "exported by",
    "EXPORT_PRODUCT_VERSION": "version",
    "EXPORT_SCHEMA_VERSION": "schema",
}
MAX_CLASSES = 3  # in a sentence


def report(trace: Trace, step_name: str = "step", title: str | None = None) -> str:
    """The page as HTML. Raises ImpossibleCapture for an impossible capture."""
    scope, names = Scope(trace, step_name), Names()  # what needs a name adds it; name_lists has them all
    leaves = step_leaves(scope)
    flame_leaves, flame_note = largest_leaves(leaves)
    time = step_time(scope)
    idle_ms = {name: ns / 1e6 for name, ns in time.idle_ns.items()} if time else {}
    step_picture = picture(leaves, time.ns / 1e6 if time else None, idle_ms)
    under = WINDOW if trace.range_paths.code(WINDOW) != NONE else None  # tables are of the window, if there is one
    findings = diagnose(scope)
    flames = {"step": flame(flame_leaves, names, "step" if scope.has_steps else "capture")}
    page_tables = _tables(scope, trace, under, names)
    bars, timeline_note = capture_timeline(scope, names)
    name_lists = _name_lists(names, leaves, findings)
    short = dict(zip(name_lists["full"], name_lists["short"], strict=True))
    return html_environment(REPORT_FOLDER).get_template("report.html.j2").render(
        title=title or trace.capture.path.name,
        on_cpu=trace.is_cpu_only,
        of_what=subject(scope),
        steps=len(scope.step_ranges),
        device_phrase=device_phrase(trace.is_cpu_only),
        time_heading=time_heading(trace.is_cpu_only),
        program=str(trace.recorded_window.get("program", "")),
        about=about(trace),
        time=time,
        sentences=sentences(scope, leaves, short),
        picture=step_picture,
        phases=[bar.name for bar in step_picture.bars if bar.name in PHASES],
        findings=[finding for finding in findings if not finding.abstained],
        unchecked=abstained_by_reason(findings),
        completeness=trace.check(step_name=step_name),
        scope_of_tables=f"What lies in the range “{WINDOW}”." if under else "All of the capture.",
        tables={table.name: table for table in page_tables},
        flames=flames,
        flame_note=flame_note,
        timeline=bars,
        timeline_note=timeline_note,
        static_rows=STATIC_ROWS,
        short=short,
        names={form: [_shortened(name) for name in all_names] for form, all_names in name_lists.items()},
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


def _name_lists(names: Names, leaves: Sequence[Leaf], findings: Sequence[Diagnosis]) -> dict[str, list[str]]:
    """All names on the page, full and short, as Names.as_lists returns them. Adds those in findings and sentences."""
    for finding in findings:
        for name in finding.where.get("kernels", {}):
            names.kernel(name)
    if leaves:
        names.kernel(kernel_with_most_time(leaves))
    return names.as_lists()


def sentences(scope: Scope, leaves: Sequence[Leaf], short: Mapping[str, str]) -> list[str]:
    """Notes on the capture, and sentences on the kernel and the classes with the most time, and on memory operations.
    `short` are the short names by full name."""
    if not leaves:
        return [f"No kernel and no memory operation was recorded in {subject(scope)}."]
    notes = [f"{CPU_ONLY_NOTE[0].upper()}{CPU_ONLY_NOTE[1:]}."] if scope.trace.is_cpu_only else []
    if not scope.has_steps:
        notes.append(f"No range named {scope.step_name!r} holds work: this page is about the whole capture.")
    if scope.steps_on_devices > scope.step_count:
        notes.append(f"Times and launches of {subject(scope)} are means over {len(scope.devices)} devices.")
    return [*notes, _kernel_sentence(leaves, short), _class_sentence(leaves), *_memory_sentences(scope)]


def about(trace: Trace) -> list[str]:
    """The GPU, the versions, the steps and the time of the recording, as far as the capture contains them."""
    window = trace.recorded_window
    version = trace.metadata.get("EXPORT_PRODUCT_VERSION", "")
    product = trace.metadata.get("EXPORT_PRODUCT_NAME", "")
    by_torch = trace.metadata.get("CAPTURE_BACKEND") == "torch"
    torch_version = window.get("torch") or (version if by_torch else "")
    began_ns = trace.capture.began_utc_ns()
    first, done = window.get("first"), window.get("done")  # the number of the first step, and how many were recorded
    facts = [
        "; ".join(sorted(set(trace.capture.gpus()))) if not trace.is_cpu_only else "CPU",
        f"PyTorch {torch_version}" if torch_version else "",
        "" if by_torch else f"{product} {version}".strip(),
        f"steps {first} to {first + done - 1}" if isinstance(first, int) and isinstance(done, int) and done else "",
        f"{datetime.fromtimestamp(began_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC" if began_ns else "",
    ]
    return [fact for fact in facts if fact]


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else name[:MAX_NAME_CHARS] + "…"


def subject(scope: Scope) -> str:
    """ "one step", or "the capture" without steps."""
    return "one step" if scope.has_steps else "the capture"


def kernel_with_most_time(leaves: Sequence[Leaf]) -> str:
    """The full name of the kernel with the most time among the leaves."""
    times = ms_by(leaves, lambda leaf: leaf.kernel)
    return max(times, key=times.__getitem__)


def _kernel_sentence(leaves: Sequence[Leaf], short: Mapping[str, str]) -> str:
    kernel = kernel_with_most_time(leaves)
    ms = sum(leaf.ms for leaf in leaves if leaf.kernel == kernel)
    launches = sum(leaf.launches for leaf in leaves if leaf.kernel == kernel)
    share = ms / max(sum(leaf.ms for leaf in leaves), 1e-12)
    return (
        f"The kernel with the most time is {short[kernel]}: {duration(1e6 * ms)} ({percent(share)}),"
        f" {f'{launches:,.1f}'.removesuffix('.0')} launch{'' if launches == 1 else 'es'}."
    )


def _class_sentence(leaves: Sequence[Leaf]) -> str:
    times = Counter(ms_by(leaves, family_of))
    total_ms = max(times.total(), 1e-12)
    shares = [f"{name} {percent(ms / total_ms)}" for name, ms in times.most_common(MAX_CLASSES)]
    return f"By class: {', '.join(shares)}."


def _memory_sentences(scope: Scope) -> list[str]:
    is_memory = scope.is_memory & scope.is_in_scope
    if not is_memory.any():
        return []
    time = duration(int(scope.activities.duration_ns[is_memory].sum()) / scope.steps_on_devices)
    return [f"Copies and sets of memory take {time}, {is_memory.sum() / scope.steps_on_devices:,.0f} of them."]
