"""Consistency checks of a capture: losses are errors, oddities warnings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution.activities import COUNTS_AS_KERNEL, KINDS
from kernel_tables.attribution.graph_replays import replayed_in_torch_trace, replayed_without_creation
from kernel_tables.attribution.launches import kernels_without_calls, launches_without_kernels
from kernel_tables.attribution.ranges import NONE
from kernel_tables.attribution.steps import measured_steps
from kernel_tables.clean_text import visible
from kernel_tables.errors import ERROR, WARNING, Finding, ImpossibleCapture, finding
from kernel_tables.files import reports_beside
from kernel_tables.global_ids import process_number, process_of
from kernel_tables.reading.schema import DAMAGE_KEY, RESOLUTION_KEY, RUNTIME, TABLE_COLUMNS
from kernel_tables.views.early_end import ended_early
from kernel_tables.views.nsys_messages import findings_of_nsys

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

    from kernel_tables.attribution.capture_arrays import CaptureArrays

SHORT_OF_VARYING_TWINS = 0.9  # if most steps vary, one with less than this share of the median kernels is short


def findings(
    trace: CaptureArrays, expected_steps: int | None = None, step_name: str = "step", *, equal_steps: bool = False
) -> list[Finding]:
    """The findings, errors first. If the capture is impossible, they only say why.

    `expected_steps` is the number of ranges `step_name` that each process should have in the window. `equal_steps` says
    that all steps do the same work, so that fewer kernels are a loss.
    """
    try:
        entries = [
            *_older_than_report(trace),
            *_limits_of_json(trace),
            *_no_kernels(trace),
            *_no_ranges(trace),
            *_steps(trace, expected_steps, step_name, equal_steps),
            *_lost_launches(trace),
            *_graph_replays(trace),
            *_calls_without_names(trace),
            *findings_of_nsys(trace.capture.diagnostics()),
            *_left_open(trace),
            *_several_threads(trace),
        ]
        trace.require_possible()
    except ImpossibleCapture as error:
        entries = list(error.findings)
    return sorted(entries, key=lambda entry: entry.severity != ERROR)


def as_table(entries: list[Finding]) -> pd.DataFrame:
    """One row per finding: severity, code, message."""
    import pandas as pd

    return pd.DataFrame([vars(entry) for entry in entries], columns=["severity", "code", "message"])


def _older_than_report(trace: CaptureArrays) -> Iterator[Finding]:
    path = trace.capture.path
    for report in reports_beside(path):
        if report.stat().st_mtime_ns > path.stat().st_mtime_ns:
            yield finding(
                "older_than_report",
                f"{visible(path.name)} is older than {visible(report.name)} next to it: the figures are those of an"
                " earlier capture; export the report again",
            )


def _limits_of_json(trace: CaptureArrays) -> Iterator[Finding]:
    if damage := trace.metadata.get(DAMAGE_KEY):
        fact = f"only what comes before the damage was read ({visible(damage)})"
        yield finding("read_up_to_damage", f"{fact}: times are too small; write or copy the trace again")
    if RESOLUTION_KEY in trace.metadata:
        yield finding(
            "whole_microseconds",
            "times are whole microseconds: a kernel of 0.9 µs counts as 0 or 1; a newer PyTorch writes nanoseconds",
        )


def _no_kernels(trace: CaptureArrays) -> Iterator[Finding]:
    if not _is_kernel(trace).any():
        yield finding(
            "no_kernels",
            "no kernel was recorded: GPU times are missing, not zero; trace CUDA (`nsys profile -t cuda,nvtx`), with an"
            " nsys that knows the driver, of a program that launches kernels within the capture",
        )


def _no_ranges(trace: CaptureArrays) -> Iterator[Finding]:
    if len(trace.range_arrays):
        return
    if trace.metadata.get("CAPTURE_BACKEND") == "torch":  # its profiler loses no ranges, so the program opened none
        yield Finding(
            WARNING,
            "no_ranges",
            "no range was open in the window, so times are only by kernel and class; give parts of the program"
            " ranges by torch.profiler.record_function",
        )
    else:
        yield finding(
            "no_ranges",
            "no NVTX range was recorded: no kernel can be attributed to a part of the program; trace NVTX"
            " (`-t cuda,nvtx`), and note that nvtx 0.2.12 or newer records nothing under nsys 2024.2 or older",
        )


def _steps(trace: CaptureArrays, expected: int | None, step_name: str, equal_steps: bool) -> Iterator[Finding]:
    """The findings about the steps of every process that has any, or about their lack."""
    steps, ranges = measured_steps(trace, step_name), trace.range_arrays
    step = trace.enclosing(step_name)[_is_kernel(trace)]  # by kernel
    kernels = np.bincount(step[step != NONE], minlength=len(ranges))  # by range
    processes = np.unique(ranges.process[steps]).tolist()
    steps_of_processes = [steps[ranges.process[steps] == process] for process in processes] or [steps]
    for process_steps in steps_of_processes:
        process = f" of process {process_number(ranges.process[process_steps[0]])}" if len(processes) > 1 else ""
        label = f"{step_name!r}{process}"
        if expected is not None and len(process_steps) != expected:
            yield finding(
                "step_count",
                f"found {len(process_steps)} ranges {label}, expected {expected}: per-step means are wrong; capture"
                " again, to the end of the program",
            )
        if len(process_steps) and _is_kernel(trace).any():
            yield from _kernels_of_steps(trace, process_steps, kernels[process_steps].tolist(), label, equal_steps)


def _kernels_of_steps(
    trace: CaptureArrays, steps: np.ndarray, kernels: list[int], label: str, equal_steps: bool
) -> Iterator[Finding]:
    """The findings from the number of kernels in each step of a process; `label` names the steps."""
    few, many = min(kernels), max(kernels)
    if trace.is_cpu_only:
        lost = None  # PyTorch's profiler loses no operators
    elif many == 0:
        lost = f"none of the {len(kernels)} ranges {label} holds a kernel, though kernels ran outside of them"
    elif few < many and (fact := ended_early(trace, steps, kernels)):
        lost = f"of {len(kernels)} ranges {label}, {fact}"
    else:
        lost = _steps_with_fewer(kernels, label) if equal_steps else None
    if lost:
        yield finding(
            "short_steps",
            f"{lost}: the CUDA trace stopped early or lost kernels, so times are too small; capture fewer steps, or"
            " flush the trace at cudaProfilerStop",
        )
    elif few < many:
        yield finding(
            "steps_vary",
            f"ranges {label} hold between {few} and {many} {'operators' if trace.is_cpu_only else 'kernels'}, and"
            " nothing shows a loss: the program does different work in them, which a mean mixes",
        )


def _steps_with_fewer(kernels: list[int], label: str) -> str | None:
    """Which steps have fewer kernels than usual, in words; None if there are none. The usual number is that of most
    steps; if most differ, it is the median, and somewhat fewer are still usual."""
    usual, twins = Counter(kernels).most_common(1)[0]
    least = usual
    if 2 * twins <= len(kernels):
        usual = int(np.median(kernels))
        least = SHORT_OF_VARYING_TWINS * usual
    short = [step for step, count in enumerate(kernels) if count < max(least, 1)]
    if not short:
        return None
    listed = ", ".join(f"{step}: {kernels[step]}" for step in short[:5])
    return (
        f"{len(short)} of {len(kernels)} ranges {label} hold fewer kernels than the usual {usual} (number of the step:"
        f" kernels = {listed})"
    )


def _lost_launches(trace: CaptureArrays) -> Iterator[Finding]:
    activities = trace.gpu_activities
    missing = launches_without_kernels(trace.capture, activities) if _is_kernel(trace).any() else 0
    if missing:
        yield finding(
            "launches_without_kernels",
            f"{missing} launches have no kernel: their time is missing from every table; wait for the GPU"
            " (torch.cuda.synchronize) before the capture ends, or capture less at a time",
        )
    if not len(trace.columns[RUNTIME]["start"]) and len(activities):
        yield finding(
            "no_api_calls",
            "no CUDA API call was recorded: no kernel can be attributed to a range; trace CUDA (`-t cuda,nvtx`) and"
            " export the complete report",
        )
        return
    if activities.has_launch.all():
        return
    calls = trace.capture.read_columns(RUNTIME, TABLE_COLUMNS[RUNTIME])
    before, lost = kernels_without_calls(activities, calls, process_of(calls["thread"]))
    if lost:
        yield finding(
            "lost_launches",
            f"{lost} activities were launched within the capture by calls that were not recorded: their ranges are not"
            " known, so ranges lack their time; capture less at a time",
        )
    if before:
        yield finding(
            "launched_before",
            f"{before} activities were launched before the capture began: they are in '(launched before the capture)'"
            " and in no range; synchronize before the capture starts to have none",
        )


def _graph_replays(trace: CaptureArrays) -> Iterator[Finding]:
    activities = trace.gpu_activities
    if replays := int((activities.kind == KINDS.index("graph")).sum()):
        yield finding(
            "graphs_as_one",
            f"{replays} replays of CUDA graphs were recorded as one activity each: their kernels are not known, and"
            " their time belongs to the range that launched the replay; capture with"
            " `nsys profile --cuda-graph-trace=node`",
        )
    if unknown := replayed_without_creation(trace.capture, activities):
        yield finding(
            "nodes_not_recorded",
            f"{unknown} activities of replayed CUDA graphs were captured before the recording: they belong to the range"
            " that launched the replay, not to the module that was captured; record from the start of the program"
            " (`nsys profile --cuda-graph-trace=node` without --capture-range)",
        )
    elif replayed := replayed_in_torch_trace(trace.capture, activities):
        yield finding(
            "nodes_not_recorded",
            f"{replayed} activities of replayed CUDA graphs belong to the range that launched the replay: PyTorch's"
            " profiler does not record a graph's nodes, and no capture in the trace certainly has the same calls;"
            " record with nsys for their modules (`kernel-tables record --profiler nsys`)",
        )


def _calls_without_names(trace: CaptureArrays) -> Iterator[Finding]:
    if trace.capture.has_nameless_calls():
        yield finding(
            "calls_without_names",
            "API calls have no names, or no ends, so lost launches cannot be counted; export the complete report",
        )


def _left_open(trace: CaptureArrays) -> Iterator[Finding]:
    if count := trace.unclosed_count:
        yield finding(
            "ranges_left_open",
            f"{count} ranges were never closed: they last to the end of the capture here; close them, or end the"
            " capture after they close",
        )


def _several_threads(trace: CaptureArrays) -> Iterator[Finding]:
    """The finding about launches that inherit ranges of two or more threads."""
    forest, ranges = trace.attribution, trace.range_arrays
    if not len(ranges):
        return
    thread, node = ranges.thread[forest.range], forest.launch_node  # by node; by activity
    # How often the thread changes along the ranges around each node: with each change, one more thread is inherited.
    changes = forest.totals(((forest.parent != NONE) & (thread != thread[forest.parent])).astype(np.int64))
    has_own = thread[node] == trace.gpu_activities.thread  # else the thread of the innermost range is inherited, too
    if launches := np.count_nonzero((node != NONE) & (changes[node] > has_own)):
        yield finding(
            "several_threads",
            f"{launches} launches inherit ranges from more than one other thread: all of them count, ordered by start,"
            " then longest, then thread; name a range in one thread only to distinguish them",
        )


def _is_kernel(trace: CaptureArrays) -> np.ndarray:
    return COUNTS_AS_KERNEL[trace.gpu_activities.kind]
