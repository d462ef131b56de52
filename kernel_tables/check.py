"""Whether a capture is complete: losses are errors, oddities are warnings."""

import re
from collections.abc import Iterator

import numpy as np

from kernel_tables.capture import KINDS, NONE, process_of, rows_by_value
from kernel_tables.errors import BAD_KEY, ERROR, RESOLUTION_KEY, WARNING, Finding, ImpossibleCapture, finding
from kernel_tables.losses import steps_without_kernels
from kernel_tables.output import visible
from kernel_tables.profile import Profile
from kernel_tables.steps import measured_steps


def findings(
    profile: Profile, expected_steps: int | None = None, step_name: str = "step", *, equal_steps: bool = False
) -> list[Finding]:
    """The findings, errors first. If the capture is impossible, they only say why.

    `expected_steps` is the number of ranges `step_name` that each process should have in the window. `equal_steps` says
    that all steps do the same work, so that fewer kernels are a loss."""
    try:
        found = [
            *profile.capture.findings, *_check_contents(profile), *_check_times(profile),
            *_check_empty_steps(profile, step_name), *_check_steps(profile, expected_steps, step_name, equal_steps),
            *_check_launches(profile), *_check_graphs(profile), *_check_messages(profile),
        ]  # fmt: skip
    except ImpossibleCapture as error:
        found = list(error.findings)
    return sorted(found, key=lambda entry: entry.severity != ERROR)


def losses(profile: Profile, step_name: str = "step") -> list[Finding]:
    """What makes figures of time wrong: impossible times, and launches, steps and replays without their kernels."""
    found = [*_check_times(profile), *_check_empty_steps(profile, step_name), *_check_launches(profile)]
    found += _check_graphs(profile)
    return [entry for entry in found if entry.severity == ERROR or entry.code == "graphs_as_one"]


def _check_contents(profile: Profile) -> Iterator[Finding]:
    capture, ranges = profile.capture, profile.capture.ranges
    if bad := profile.metadata.get(BAD_KEY):
        fact = f"{bad} events were left out or repaired: a byte that is no text, a wrong type, no time"
        yield finding("bad_events", f"{fact}; write the trace again if their number matters")
    if RESOLUTION_KEY in profile.metadata:
        fact = "times are whole microseconds: a kernel of 0.9 µs counts as 0 or 1"
        yield finding("whole_microseconds", f"{fact}; a newer PyTorch writes nanoseconds")
    if not capture.activities.is_kernel.any():
        fact = "no kernel was recorded: GPU times are missing, not zero"
        advice = "trace CUDA (`nsys profile -t cuda,nvtx`), with an nsys that knows the driver, while kernels run"
        yield finding("no_kernels", f"{fact}; {advice}")
    if not len(ranges) and not capture.findings:
        advice = (
            "trace NVTX (`-t cuda,nvtx`), and note that nvtx 0.2.12 or newer records nothing under nsys 2024.2 or older"
        )
        if capture.is_torch:  # whose profiler loses no ranges
            advice = "give parts of the program ranges by torch.profiler.record_function"
        fact = "no range was recorded, so times are only by kernel and class"
        yield Finding(WARNING if capture.is_torch else ERROR, "no_ranges", f"{fact}; {advice}")
    if ranges.unclosed:
        fact = f"{ranges.unclosed} ranges were never closed: they last to the end of the capture here"
        yield finding("ranges_left_open", f"{fact}; close them, or end the capture after they close")


def _check_times(profile: Profile) -> Iterator[Finding]:
    """The findings about times that no activity can have; see losses.py."""
    work = profile.capture.activities
    facts = {
        "zero_time": "have no time: it is 0, or far from all others",
        "negative_duration": "end before they start",
        "starts_before_launch": "start a millisecond or more before the call that launched them",
        "outlasts_host": "are longer than all that the host did",
        "overlaps_next": "still run when the next one on their stream has ended",
    }
    for code, rows in (profile.attribution and work.impossible).items():  # which attribution finds
        example = visible(work.names[min(work.name[rows].tolist())][:60])
        fact = f"{len(rows)} of {len(work):,} activities ({example}) {facts[code]}, which is impossible"
        meaning = "they count as launches, and their time is missing from every figure"
        yield finding(code, f"{fact}: {meaning}; capture again, or update PyTorch, nsys and the driver")


def _check_empty_steps(profile: Profile, step_name: str) -> Iterator[Finding]:
    """The finding about steps in which the host launched kernels and none was recorded."""
    steps = measured_steps(profile, step_name)
    if lost := len(steps_without_kernels(profile, steps, step_name)):
        fact = f"{lost} of {len(steps)} ranges {step_name!r} hold no kernel, though the host launched some in them"
        yield finding("steps_without_kernels", f"{fact}: only the others count as steps; capture fewer at a time")


def _check_steps(profile: Profile, expected: int | None, step_name: str, equal_steps: bool) -> Iterator[Finding]:
    """The findings about the steps of every process that has any, or about their lack."""
    ranges, is_kernel = profile.capture.ranges, profile.capture.activities.is_kernel
    steps = measured_steps(profile, step_name)
    step = profile.enclosing(step_name)[is_kernel]  # by kernel
    kernels = np.bincount(step[step != NONE], minlength=len(ranges))  # by range
    by_process = rows_by_value(process_of(ranges.thread)[steps]) or {0: np.empty(0, np.int64)}
    lost = steps_without_kernels(profile, steps, step_name)
    for process, rows in by_process.items():
        mine = steps[rows]
        label = f"{step_name!r}" + (f" of process {process >> 24 & 0xFFFFFF}" if len(by_process) > 1 else "")
        if expected is not None and len(mine) != expected:
            fact = f"found {len(mine)} ranges {label}, expected {expected}: per-step means are wrong"
            yield finding("step_count", f"{fact}; capture again, to the end of the program")
        mine = mine[~np.isin(mine, lost)]
        if not len(mine) or not is_kernel.any():
            continue
        few, many, is_cpu_only = kernels[mine].min(), kernels[mine].max(), profile.is_cpu_only
        if not is_cpu_only and (fact := _lost_kernels(profile, mine, kernels[mine], equal_steps)):
            fact = f"of {len(mine)} ranges {label}, {fact}: the CUDA trace stopped early or lost kernels"
            yield finding("short_steps", f"{fact}; capture fewer steps, or flush the trace at cudaProfilerStop")
        elif few < many:
            fact = f"ranges {label} hold between {few} and {many} {'operators' if is_cpu_only else 'kernels'}"
            yield finding("steps_vary", f"{fact}, and nothing shows a loss: a mean mixes steps that do different work")


def _lost_kernels(profile: Profile, steps: np.ndarray, kernels: np.ndarray, equal_steps: bool) -> str | None:
    """The fact, in words, that shows that calls or kernels of these steps of a process were lost; None without one.

    Fewer kernels than in other steps prove no loss: an optimizer may call its closure less often. But ranges are
    recorded independently of calls. So calls are missing if a range opens in a step after the last call, and all
    earlier ranges of its name launched kernels."""
    if not kernels.any():
        return "none holds a kernel, though kernels ran outside of them"
    usual = float(np.median(kernels))
    if 2 * np.count_nonzero(kernels == usual) <= len(kernels):  # if most differ, down to 90 % of it are usual
        usual *= 0.9
    if equal_steps and (short := np.flatnonzero(kernels < max(usual, 1))).size:
        listed = ", ".join(f"{step}: {kernels[step]}" for step in short[:5].tolist())
        return f"{len(short)} hold fewer kernels than the usual {usual:g} (number of the step: kernels = {listed})"
    calls, ranges = profile.capture.calls, profile.capture.ranges
    is_of_process = process_of(ranges.thread) == process_of(ranges.thread[steps[0]])
    mine = process_of(calls.threads)[calls.thread] == process_of(ranges.thread[steps[0]])
    if not mine.any() or kernels.min() == kernels.max():
        return None
    profile.capture.load_call_ends()
    last_ns = int(calls.end[mine].max())
    later = np.flatnonzero(is_of_process & (ranges.start >= last_ns) & (ranges.start < ranges.end[steps].max()))
    for code in np.unique(ranges.name[later]).tolist():
        earlier = np.flatnonzero((ranges.name == code) & is_of_process & (ranges.start < last_ns))
        has_launched = np.isin(earlier, profile.enclosing(ranges.names[code]))
        may_have_lost = ranges.end[earlier] > last_ns  # open at the last call, so they need not have launched
        if has_launched.any() and (has_launched | may_have_lost).all():
            return f"a range {ranges.names[code]!r} opens after the last CUDA call; all earlier ones launched kernels"
    return None


def _check_launches(profile: Profile) -> Iterator[Finding]:
    """The findings about calls without activities, and activities without calls."""
    capture = profile.capture
    if missing := len(profile.lost_launches):
        fact = f"{missing} launches have no kernel: their time is missing from every table"
        advice = "wait for the GPU (torch.cuda.synchronize) before the capture ends, or capture less at a time"
        yield finding("launches_without_kernels", f"{fact}; {advice}")
    if len(capture.calls.start) and not capture.source.has_call_names:
        fact = "API calls have no names, or no ends, so lost launches cannot be counted"
        yield finding("calls_without_names", f"{fact}; export the complete report")
    if not len(capture.calls.start) and len(capture.activities):
        fact = "no CUDA API call was recorded: no kernel can be attributed to a range"
        yield finding("no_api_calls", f"{fact}; trace CUDA (`-t cuda,nvtx`) and export the complete report")
        return
    without = np.flatnonzero(profile.attribution.launch_row == NONE)
    if lost := np.count_nonzero(_were_launched_within(profile, without)):
        fact = f"{lost} activities were launched within the capture by calls that were not recorded"
        yield finding("lost_launches", f"{fact}: ranges lack their time; capture less at a time")
    if before := len(without) - lost:
        fact = f"{before} activities were launched before the capture began: they are in no range"
        yield finding("launched_before", f"{fact}; synchronize before the capture starts to have none")


def _were_launched_within(profile: Profile, rows: np.ndarray) -> np.ndarray:
    """Whether each of these activities without a call was launched within the capture: it started after the first
    recorded call of its process, and has a higher correlation id, since ids rise with every call, or none."""
    work, calls = profile.capture.activities, profile.capture.calls
    within, process = np.zeros(len(rows), bool), process_of(calls.threads)[calls.thread]
    correlation, start_ns, own = work.correlation[rows], work.start[rows], work.process[rows]
    for number in np.unique(own).tolist():
        known = np.flatnonzero((process == number) & (calls.correlation > 0))
        for first in known[np.argsort(calls.start[known], kind="stable")[:1]].tolist():
            is_later = (correlation > calls.correlation[first]) | (correlation <= 0)
            within |= is_later & (start_ns > calls.start[first]) & (own == number)
    return within


def _check_graphs(profile: Profile) -> Iterator[Finding]:
    """The findings about replayed CUDA graphs whose kernels or modules are not known."""
    capture, work, attribution = profile.capture, profile.capture.activities, profile.attribution
    if replays := np.count_nonzero(work.kind == KINDS.index("graph")):
        fact = f"{replays} replays of CUDA graphs were recorded as one activity each, so their kernels are not known"
        yield finding("graphs_as_one", f"{fact}; capture with `nsys profile --cuda-graph-trace=node`")
    count = np.count_nonzero(attribution.has_unknown_node)
    advice = "record from the start of the program (`nsys profile --cuda-graph-trace=node` without --capture-range)"
    if not count and capture.is_torch:  # whose profiler records no nodes; those that are certain the reader found
        is_replay = np.isin(attribution.launch_row, capture.calls.named("GraphLaunch"))
        count = np.count_nonzero(is_replay & (work.node == NONE))
        advice = "PyTorch's profiler records no nodes; record with nsys (`kernel-tables record --profiler nsys`)"
    if count:
        fact = f"{count} activities of replayed CUDA graphs belong to the range that launched them, not to modules"
        yield finding("nodes_not_recorded", f"{fact}: {advice}")


def _check_messages(profile: Profile) -> Iterator[Finding]:
    """The messages of nsys about its own capture, which are recognized by their English."""
    losses = (
        r"(?!.*\b0 .*\bdropped\b|.*\bdropped:?\s*0\b).*(\bdropped\b|\blost\b|incomplete .*events"
        r"|buffer.*(overflow|full|exceeded)|out of (disk space|memory)|no space left)"
    )
    kinds = (  # the first that fits: its code, its least severity, how the message reads
        ("nsys_lost_events", 0, losses),
        ("nsys_error", 3, r"(?!.*(sampling|perf_event|paranoid|context switch|backtrace))"),
        ("nsys_hedge", 0, r".*not all .* might have been collected"),  # even if nothing is lost (2025.3 on an H200)
        ("nsys_older_than_driver", 2, r".*driver version .* is not supported by this build"),
        ("nsys_warning", 2, ""),
    )
    for severity, message in sorted(set(profile.capture.messages)):
        text = " ".join(message[:500].split()).removesuffix(".")
        fits = (code for code, least, pattern in kinds if severity >= least and re.match(pattern, text, re.IGNORECASE))
        if code := next(fits, ""):
            is_loss = code in ("nsys_lost_events", "nsys_error")
            meaning = "figures may lack what it lost; capture less at a time" if is_loss else "no loss is known"
            yield finding(code, f"nsys: {visible(text)}: {meaning}")
