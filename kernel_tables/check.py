"""Whether a capture is complete: losses are errors, oddities are warnings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.capture import KINDS, NONE, process_of
from kernel_tables.errors import (
    BAD_KEY,
    DAMAGE_KEY,
    ERROR,
    RESOLUTION_KEY,
    WARNING,
    Finding,
    ImpossibleCapture,
    finding,
)
from kernel_tables.intervals import gaps, intersection, union
from kernel_tables.losses import steps_without_kernels
from kernel_tables.output import visible
from kernel_tables.steps import measured_steps, rows_by_value

if TYPE_CHECKING:
    from kernel_tables.profile import Profile


def findings(
    profile: Profile, expected_steps: int | None = None, step_name: str = "step", *, equal_steps: bool = False
) -> list[Finding]:
    """The findings, errors first. If the capture is impossible, they only say why.

    `expected_steps` is the number of ranges `step_name` that each process should have in the window. `equal_steps` says
    that all steps do the same work, so that fewer kernels are a loss.
    """
    check = _Check(profile)
    try:
        found = [
            *profile.capture.findings, *check.kernels_and_ranges(), *check.impossible_times(),
            *check.steps_without_kernels(step_name), *check.steps(expected_steps, step_name, equal_steps),
            *check.launches(), *check.overhead(), *check.graphs(), *check.messages(),
        ]  # fmt: skip
    except ImpossibleCapture as error:
        found = list(error.findings)
    return sorted(found, key=lambda entry: entry.severity != ERROR)


def losses(profile: Profile, step_name: str = "step") -> list[Finding]:
    """The errors that make figures of time wrong: impossible times, and launches and steps without kernels."""
    check = _Check(profile)
    found = [*check.impossible_times(), *check.steps_without_kernels(step_name), *check.launches()]
    return [entry for entry in found if entry.severity == ERROR]


class _Check:
    """The findings of one capture, by what they are about."""

    def __init__(self, profile: Profile):
        self.profile, self.capture = profile, profile.capture
        self.work, self.calls, self.ranges = self.capture.activities, self.capture.calls, self.capture.ranges
        self.is_kernel = self.work.is_kernel

    def kernels_and_ranges(self) -> Iterator[Finding]:
        """What was recorded at all, and how exactly."""
        if damage := self.profile.metadata.get(DAMAGE_KEY):
            fact = f"only what comes before the damage was read ({visible(damage)})"
            yield finding("read_up_to_damage", f"{fact}: times are too small; write or copy the trace again")
        if bad := self.profile.metadata.get(BAD_KEY):
            fact = f"{bad} events were left out or repaired: a byte that is no text, a wrong type, no time"
            yield finding("bad_events", f"{fact}; write the trace again if their number matters")
        if RESOLUTION_KEY in self.profile.metadata:
            yield finding(
                "whole_microseconds",
                "times are whole microseconds: a kernel of 0.9 µs counts as 0 or 1; a newer PyTorch writes nanoseconds",
            )
        if not self.is_kernel.any():
            yield finding(
                "no_kernels",
                "no kernel was recorded: GPU times are missing, not zero; trace CUDA (`nsys profile -t cuda,nvtx`),"
                " with an nsys that knows the driver, of a program that launches kernels within the capture",
            )
        if not len(self.ranges) and not self.capture.findings:
            lost = (
                "no NVTX range was recorded: no kernel can be attributed to a part of the program; trace NVTX"
                " (`-t cuda,nvtx`), and note that nvtx 0.2.12 or newer records nothing under nsys 2024.2 or older"
            )
            opened_none = (  # PyTorch's profiler loses no ranges
                "no range was open in the window, so times are only by kernel and class; give parts of the program"
                " ranges by torch.profiler.record_function"
            )
            is_torch = self.capture.is_torch
            yield Finding(WARNING if is_torch else ERROR, "no_ranges", opened_none if is_torch else lost)
        if self.ranges.unclosed:
            yield finding(
                "ranges_left_open",
                f"{self.ranges.unclosed} ranges were never closed: they last to the end of the capture here; close"
                " them, or end the capture after they close",
            )

    def steps_without_kernels(self, step_name: str) -> Iterator[Finding]:
        """The finding about steps in which the host launched kernels and none was recorded."""
        steps = measured_steps(self.profile, step_name)
        if lost := len(steps_without_kernels(self.profile, steps, step_name)):
            yield finding(
                "steps_without_kernels",
                f"{lost} of {len(steps)} ranges {step_name!r} hold no kernel, though the host launched some in them:"
                " their kernels are lost, and only the others count as steps; capture fewer steps at a time",
            )

    def steps(self, expected: int | None, step_name: str, equal_steps: bool) -> Iterator[Finding]:
        """The findings about the steps of every process that has any, or about their lack."""
        steps, process_of_range = measured_steps(self.profile, step_name), process_of(self.ranges.thread)
        step = self.profile.enclosing(step_name)[self.is_kernel]  # by kernel
        kernels = np.bincount(step[step != NONE], minlength=len(self.ranges))  # by range
        by_process = rows_by_value(process_of_range[steps]) or {0: np.empty(0, np.int64)}
        lost = steps_without_kernels(self.profile, steps, step_name)
        for process, rows in by_process.items():
            mine = steps[rows]
            label = f"{step_name!r}" + (f" of process {process >> 24 & 0xFFFFFF}" if len(by_process) > 1 else "")
            if expected is not None and len(mine) != expected:
                yield finding(
                    "step_count",
                    f"found {len(mine)} ranges {label}, expected {expected}: per-step means are wrong; capture again,"
                    " to the end of the program",
                )
            mine = mine[~np.isin(mine, lost)]
            if len(mine) and self.is_kernel.any():
                yield from self._kernels_of_steps(mine, kernels[mine].tolist(), label, equal_steps)

    def _kernels_of_steps(
        self, steps: np.ndarray, kernels: list[int], label: str, equal_steps: bool
    ) -> Iterator[Finding]:
        """The findings from the number of kernels in each step of a process; `label` names the steps."""
        few, many, is_cpu_only = min(kernels), max(kernels), self.profile.is_cpu_only
        if is_cpu_only:
            lost = None  # PyTorch's profiler loses no operators
        elif many == 0:
            lost = f"none of the {len(kernels)} ranges {label} holds a kernel, though kernels ran outside of them"
        elif few < many and (fact := self._early_end(steps, kernels)):
            lost = f"of {len(kernels)} ranges {label}, {fact}"
        else:
            lost = self._steps_with_fewer(kernels, label) if equal_steps else None
        if lost:
            yield finding(
                "short_steps",
                f"{lost}: the CUDA trace stopped early or lost kernels, so times are too small; capture fewer steps, or"
                " flush the trace at cudaProfilerStop",
            )
        elif few < many:
            yield finding(
                "steps_vary",
                f"ranges {label} hold between {few} and {many} {'operators' if is_cpu_only else 'kernels'}, and nothing"
                " shows a loss: the program does different work in them, which a mean mixes",
            )

    def _steps_with_fewer(self, kernels: list[int], label: str) -> str | None:
        """Which steps have fewer kernels than usual, in words; None if none has. The usual number is that of most
        steps; if most differ, it is the median, and down to 90 % of it are still usual."""
        usual, twins = Counter(kernels).most_common(1)[0]
        least = usual
        if 2 * twins <= len(kernels):
            usual = int(np.median(kernels))
            least = 0.9 * usual
        short = [f"{step}: {count}" for step, count in enumerate(kernels) if count < max(least, 1)]
        fact = f"{len(short)} of {len(kernels)} ranges {label} hold fewer kernels than the usual {usual}"
        return f"{fact} (number of the step: kernels = {', '.join(short[:5])})" if short else None

    def _early_end(self, steps: np.ndarray, kernels: list[int]) -> str | None:
        """The fact, in words, that shows that calls of CUDA in the last of these `steps` were lost; None without one.

        `steps` are ranges of one process in order of time, `kernels` the numbers of their kernels. Fewer kernels than
        in other steps prove no loss: an optimizer may call its closure less often. But ranges are recorded
        independently of calls. So calls are missing in two cases:

        - A range opens in a step after the last call, and all earlier ranges of its name launched kernels.
        - The last step with calls has fewer kernels than any before, and the time from its last call to its end is more
          than twice the longest time without a call in any step before.
        """
        self.capture.load_call_ends()
        ranges, process = self.ranges, process_of(self.ranges.thread[steps[0]])
        mine = process_of(self.calls.threads)[self.calls.thread] == process
        if not mine.any():
            return None
        calls = union(self.calls.start[mine], self.calls.end[mine])
        last_ns = int(calls.end_ns[-1])
        is_of_process = process_of(ranges.thread) == process
        later = np.flatnonzero(is_of_process & (ranges.start >= last_ns) & (ranges.start < ranges.end[steps].max()))
        for code in np.unique(ranges.name[later]).tolist():
            earlier = np.flatnonzero((ranges.name == code) & is_of_process & (ranges.start < last_ns))
            has_launched = np.isin(earlier, self.profile.enclosing(ranges.names[code]))
            may_have_lost = ranges.end[earlier] > last_ns  # open at the last call, so they need not have launched
            if has_launched.any() and (has_launched | may_have_lost).all():
                name = ranges.names[code]
                return f"a range {name!r} opens after the last CUDA call, and all earlier ones launched kernels"
        last = int(np.searchsorted(ranges.start[steps], last_ns)) - 1  # the last step with calls
        if last < 1 or kernels[last] >= min(kernels[:last]):
            return None
        bounds = zip(ranges.start[steps[:last]].tolist(), ranges.end[steps[:last]].tolist(), strict=True)
        usual_ns = max(int(gaps(calls, *of_step).lengths_ns.max(initial=0)) for of_step in bounds)
        if int(ranges.end[steps[last]]) - last_ns <= 2 * usual_ns:
            return None
        return "one ends more than 2 times as long after the last CUDA call as the others ever go without one"

    def launches(self) -> Iterator[Finding]:
        """The findings about calls without activities, and activities without calls."""
        if missing := len(self.profile.lost_launches):
            yield finding(
                "launches_without_kernels",
                f"{missing} launches have no kernel: their time is missing from every table; wait for the GPU"
                " (torch.cuda.synchronize) before the capture ends, or capture less at a time",
            )
        if len(self.calls.start) and not self.capture.source.has_call_names:
            yield finding(
                "calls_without_names",
                "API calls have no names, or no ends, so lost launches cannot be counted; export the complete report",
            )
        if not len(self.calls.start) and len(self.work):
            yield finding(
                "no_api_calls",
                "no CUDA API call was recorded: no kernel can be attributed to a range; trace CUDA (`-t cuda,nvtx`) and"
                " export the complete report",
            )
            return
        without = np.flatnonzero(self.profile.attribution.launch_row == NONE)
        lost = int(np.count_nonzero(self._were_launched_within(without)))
        if lost:
            yield finding(
                "lost_launches",
                f"{lost} activities were launched within the capture by calls that were not recorded: their ranges are"
                " not known, so ranges lack their time; capture less at a time",
            )
        if before := len(without) - lost:
            yield finding(
                "launched_before",
                f"{before} activities were launched before the capture began: they are in '(launched before the"
                " capture)' and in no range; synchronize before the capture starts to have none",
            )

    def _were_launched_within(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of these activities without a call was launched within the capture: it started after the first
        recorded call of its process, and has a higher correlation id, since ids rise with every call, or none."""
        within, process = np.zeros(len(rows), bool), process_of(self.calls.threads)[self.calls.thread]
        for number in np.unique(self.work.process[rows]).tolist():
            calls = np.flatnonzero((process == number) & (self.calls.correlation > 0))
            if len(calls):
                first = calls[np.argmin(self.calls.start[calls])]
                later = self.work.correlation[rows] > self.calls.correlation[first]
                later |= self.work.correlation[rows] <= 0
                later &= self.work.start[rows] > self.calls.start[first]
                within |= later & (self.work.process[rows] == number)
        return within

    def impossible_times(self) -> Iterator[Finding]:
        """The findings about times that no activity can have; see impossible.py."""
        found = self.profile.attribution and self.work.impossible  # which attribution finds
        facts = {
            "zero_time": "have no time: it is 0, or far from all others",
            "negative_duration": "end before they start",
            "starts_before_launch": "start a millisecond or more before the call that launched them",
            "outlasts_host": "are longer than all that the host did",
            "overlaps_next": "still run when the next one on their stream has ended",
        }
        for code, rows in found.items():
            example = visible(self.work.names[min(self.work.name[rows].tolist())][:60])
            yield finding(
                code,
                f"{len(rows)} of {len(self.work):,} activities ({example}) {facts[code]}, which is impossible: they"
                " count as launches, and their time is missing from every figure; capture again, or update PyTorch,"
                " nsys and the driver",
            )

    def overhead(self) -> Iterator[Finding]:
        """The finding about the profiler's own time."""
        busy, overhead = union(self.work.start, self.work.end), union(*self.capture.overhead)
        if not len(busy) or not len(overhead):
            return
        first_ns, last_ns = int(busy.start_ns[0]), int(busy.end_ns[-1])
        lost_ns = intersection(overhead, gaps(busy, first_ns, last_ns)).total_ns
        if lost_ns > 0.05 * (last_ns - first_ns):
            yield finding(
                "profiler_overhead",
                f"the GPU did nothing for {lost_ns / 1e6:,.1f} ms, {100 * lost_ns / (last_ns - first_ns):.0f} % of the"
                " recorded time, while the profiler itself was busy: these gaps are not the program's",
            )

    def graphs(self) -> Iterator[Finding]:
        if replays := np.count_nonzero(self.work.kind == KINDS.index("graph")):
            yield finding(
                "graphs_as_one",
                f"{replays} replays of CUDA graphs were recorded as one activity each: their kernels are not known, and"
                " their time belongs to the range that launched the replay; capture with"
                " `nsys profile --cuda-graph-trace=node`",
            )
        if unknown := np.count_nonzero(self.profile.attribution.has_unknown_node):
            yield finding(
                "nodes_not_recorded",
                f"{unknown} activities of replayed CUDA graphs were captured before the recording: they belong to the"
                " range that launched the replay, not to the module that was captured; record from the start of the"
                " program (`nsys profile --cuda-graph-trace=node` without --capture-range)",
            )
        elif self.capture.is_torch:  # whose profiler records no nodes; those that are certain were found by the reader
            is_replay = np.zeros(len(self.calls.start) + 1, bool)
            is_replay[self.calls.named("GraphLaunch")] = True
            replayed = is_replay[self.profile.attribution.launch_row] & (self.work.node == NONE)
            if count := np.count_nonzero(replayed):
                yield finding(
                    "nodes_not_recorded",
                    f"{count} activities of replayed CUDA graphs belong to the range that launched the replay:"
                    " PyTorch's profiler does not record a graph's nodes, and no capture in the trace certainly has the"
                    " same calls; record with nsys for their modules (`kernel-tables record --profiler nsys`)",
                )

    def messages(self) -> Iterator[Finding]:
        """The messages of nsys about its own capture, which are recognized by their English."""
        losses = (
            r"(?!.*\b0 .*\bdropped\b|.*\bdropped:?\s*0\b).*(\bdropped\b|\blost\b|incomplete .*events"
            r"|buffer.*(overflow|full|exceeded)|out of (disk space|memory)|no space left)"
        )
        harmless = "nothing is known to be lost; nothing has to be done"
        kinds = (  # the first that fits: its code, its least severity, how the message reads, what it means
            ("nsys_lost_events", 0, losses, "times and counts may be too small; capture less at a time"),
            (
                "nsys_error", 3, r"(?!.*(sampling|perf_event|paranoid|context switch|backtrace))",
                "what it failed to record is missing; capture again",
            ),
            (
                "nsys_hedge", 0, r".*not all .* might have been collected",  # even if nothing is (2025.3 on an H200)
                "nsys warns of this whenever a program outlives its capture range; figures hold unless another finding"
                " counts a loss",
            ),
            ("nsys_older_than_driver", 2, r".*driver version .* is not supported by this build", harmless),
            ("nsys_warning", 2, "", harmless),
        )  # fmt: skip
        for (severity, message), processes in sorted(Counter(self.capture.messages).items()):
            text = " ".join(message[:500].split())
            text = f"{text}..." if len(message) > 500 else text.removesuffix(".")
            source = f"nsys, of {processes} processes" if processes > 1 else "nsys"
            for code, least, pattern, meaning in kinds:
                if severity >= least and re.match(pattern, text, re.IGNORECASE):
                    yield finding(code, f"{source}: {visible(text)}: {meaning}")
                    break
