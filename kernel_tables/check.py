"""What is wrong with a capture, or odd. Errors: figures are wrong or missing. Warnings: nothing is known to be lost.

Every finding has a code, the number of things it is about, their share of the GPU time (0 if unknown), and one line that
says what it means for the figures and what to do.
"""

import re
from collections.abc import Iterator

import numpy as np

from kernel_tables.attribution import Attribution, stream_capture_begins
from kernel_tables.capture import KINDS, LAUNCHES, NONE, THREAD_BITS, Capture, Finding, blocks, distinct, process_of
from kernel_tables.tables import IS_KERNEL

ERROR, WARNING = "error", "warning"
EARLY_NS = 1_000_000  # clocks of host and GPU differ by microseconds, never by a millisecond
LIBRARIES = {"CCCL", "NCCL", "CUBLAS", "CUBLASLT", "CUDNN", "CUSPARSE", "CUSOLVER", "CUFFT", "NVSHMEM", "UCX", "RAPIDS"}
OF_LIBRARY = re.compile(r"(cub|thrust|cuda)::|nccl[A-Z]|cu(blas|dnn|sparse|solver|fft)[A-Z_]")
MUCH_OVERHEAD = 0.05  # of the time from the first kernel to the last
# nsys's own messages, in its English. It writes the hedge whenever a program outlives its capture range.
LOSSES = re.compile(
    r"\bdropped\b|\blost\b|incomplete .*events|buffer.*(overflow|full|exceeded)|out of (disk space|memory)|no space left",
    re.I,
)
NO_LOSS = re.compile(r"\b0 .*\bdropped\b|\bdropped:?\s*0\b", re.I)
HEDGE = re.compile(r"not all .* might have been collected", re.I)
OF_CPU_SAMPLING = re.compile(r"sampling|perf_event|paranoid|context switch|backtrace", re.I)


def findings(capture: Capture, attribution: Attribution) -> list[Finding]:
    """The findings, errors first, the largest share first."""
    check = _Check(capture, attribution)
    found = [
        *capture.findings, *check.kernels_and_ranges(), *check.impossible_times(), *check.launches(), *check.graphs(),
        *check.steps(), *check.of_the_profiler(), *check.of_the_file(),
    ]  # fmt: skip
    return sorted(found, key=lambda one: (one.severity != ERROR, -one.share, one.code))


class _Check:
    def __init__(self, capture: Capture, attribution: Attribution):
        self.capture, self.attribution = capture, attribution
        self.work, self.calls, self.ranges = capture.activities, capture.calls, capture.ranges
        self.has_call = attribution.launch_row != NONE
        self.is_kernel = IS_KERNEL[self.work.kind]
        self.all_ns = max(sum(int((self.work.end[b] - self.work.start[b]).sum()) for b in blocks(len(self.work))), 1)

    def share(self, rows: np.ndarray) -> float:
        """The share of the GPU time of these activities."""
        return float((self.work.end[rows] - self.work.start[rows]).sum() / self.all_ns)

    def kernels_and_ranges(self) -> Iterator[Finding]:
        if not self.is_kernel.any():
            yield Finding(ERROR, "no_kernels", 0, 0, "no kernel was recorded: GPU times are missing, not zero; trace CUDA"
                          " (-t cuda,nvtx) with an nsys that knows the driver")  # fmt: skip
        if not len(self.ranges):
            is_torch = self.capture.is_torch  # whose profiler loses no ranges, so the program opened none
            yield Finding(WARNING if is_torch else ERROR, "no_ranges", 0, 1, "no range was recorded: times are only by"
                          " kernel and class; give parts of the program ranges, and trace NVTX")  # fmt: skip
        elif not self.capture.is_torch and self._all_of_libraries():
            yield Finding(ERROR, "only_library_ranges", len(self.ranges), 1, "all ranges are of libraries, such as"
                          f" {self.ranges.names[0][:60]!r}: those of the program are missing; trace NVTX with a newer"
                          " nsys, or give the program ranges")  # fmt: skip
        if self.ranges.unclosed:
            yield Finding(WARNING, "ranges_left_open", self.ranges.unclosed, 0, f"{self.ranges.unclosed} ranges were never"
                          " closed: here they last to the end of the capture")  # fmt: skip

    def _all_of_libraries(self) -> bool:
        domains = {
            self.ranges.domains.get((process, domain), "").upper()
            for process, domain in set(zip(process_of(self.ranges.thread).tolist(), self.ranges.domain.tolist()))
        }
        return domains <= LIBRARIES or all(OF_LIBRARY.match(name) for name in self.ranges.names)

    def impossible_times(self) -> Iterator[Finding]:
        start, end, row = self.work.start, self.work.end, self.attribution.launch_row
        if not len(start):
            return
        no_time = end == 0
        if not self.capture.facts.get("whole_microseconds"):
            no_time |= (start == end) & self.is_kernel
        if count := np.count_nonzero(no_time):
            yield Finding(ERROR, "no_time", count, 0, f"{count} activities have no time: CUPTI lost it, so their time is"
                          " missing; capture again")  # fmt: skip
        if self.has_call.any():
            is_early = np.empty(len(start), bool)
            for block in blocks(len(start)):
                is_early[block] = start[block] < self.calls.start[row[block]] - EARLY_NS
            early = np.flatnonzero(is_early & self.has_call & ~no_time)
            if len(early):
                worst = int((self.calls.start[row[early]] - start[early]).max())
                yield Finding(ERROR, "starts_before_launch", len(early), self.share(early), f"{len(early)} activities start"
                              f" up to {worst / 1e6:,.0f} ms before the call that launched them, which is impossible: their"
                              " times are wrong; leave them out, or capture again")  # fmt: skip
        yield from self._overlaps()

    def _overlaps(self) -> Iterator[Finding]:
        """A stream runs one activity after another (but for a graph, whose branches have the stream of the launch): one
        that is still running when the next has ended has a wrong time."""
        graphs = np.isin(self.calls.name, [k for k, name in self.calls.names.items() if "GraphLaunch" in name])
        replayed = np.append(graphs, False)[self.attribution.launch_row] | (self.work.node != NONE)
        rows, start, end, place = slice(None), self.work.start, self.work.end, (self.work.stream, self.work.process)
        is_sorted = all(one.strides == (0,) for one in place) and not (start[1:] < start[:-1]).any()
        if replayed.any() or not is_sorted:
            rows = np.flatnonzero(~replayed & (end > 0))
            rows = rows[np.lexsort((start[rows], *(one[rows] for one in place)))]
            start, end, place = start[rows], end[rows], tuple(one[rows] for one in place)
        same = np.ones(max(len(start) - 1, 0), bool)
        for one in place:
            same &= one[1:] == one[:-1]
        wrong = np.flatnonzero(same & (end[:-1] > end[1:]) & (end[1:] > start[1:]) & (start[1:] > start[:-1]))
        if len(wrong):
            excess = int((end[wrong] - start[wrong + 1]).sum())
            names = {self.work.names[name] for name in self.work.name[rows][wrong].tolist()}
            yield Finding(ERROR, "overlaps_next", len(wrong), min(excess / self.all_ns, 1), f"{len(wrong)} activities still"
                          f" run when the next on their stream has ended, {excess / 1e6:,.3f} ms in all: their times are"
                          f" too long, or its; the first is {min(names)[:60]!r}")  # fmt: skip

    def launches(self) -> Iterator[Finding]:
        yield from self._lost_kernels()
        if not len(self.calls.start) and len(self.work):
            yield Finding(
                ERROR, "no_api_calls", 0, 1, "no API call was recorded: no kernel can be attributed to a range"
            )
            return
        without = np.flatnonzero(~self.has_call)
        unnumbered = without[self.work.correlation[without] <= 0]
        if len(unnumbered):
            yield Finding(ERROR, "no_correlation", len(unnumbered), self.share(unnumbered), f"{len(unnumbered)} activities"
                          " have no correlation id: who launched them is not known; they are in '(launch not recorded)'")  # fmt: skip
        without = without[self.work.correlation[without] > 0]
        if len(without):
            process, within = process_of(self.calls.threads)[self.calls.thread], np.zeros(len(without), bool)
            for number in np.unique(self.work.process[without]).tolist():
                calls = np.flatnonzero((process == number) & (self.calls.correlation > 0))
                if len(calls):
                    first, mine = calls[np.argmin(self.calls.start[calls])], self.work.process[without] == number
                    later = self.work.correlation[without] > self.calls.correlation[first]  # ids rise with every call
                    within |= mine & later & (self.work.start[without] > self.calls.start[first])
            lost, before = without[within], without[~within]
            if len(lost):
                yield Finding(ERROR, "lost_launches", len(lost), self.share(lost), f"{len(lost)} activities were launched"
                              " within the capture by calls that were not recorded: ranges lack their time; capture less at"
                              " a time")  # fmt: skip
            if len(before):
                yield Finding(WARNING, "launched_before", len(before), self.share(before), f"{len(before)} activities were"
                              " launched before the capture began: they are in no range; synchronize before it starts")  # fmt: skip
        yield from self._repeated()

    def _lost_kernels(self) -> Iterator[Finding]:
        """Launches without a kernel, that succeeded, and captured no graph. A runtime call and the driver call inside it
        are one launch."""
        launches = self.calls.named(*LAUNCHES)
        if not len(launches) or not self.is_kernel.any():
            return
        ran = np.zeros(len(self.calls.start), bool)
        ran[self.attribution.launch_row[self.has_call]] = True
        if self.calls.end is None or ran[launches].all():
            return
        process = process_of(self.calls.threads)[self.calls.thread[launches]]
        key = self.calls.correlation[launches] << 8 | np.unique(process, return_inverse=True)[1].reshape(-1)
        ran = ran[launches] | np.isin(key, key[ran[launches]])  # of calls with one id, the first counts as the launch
        ran |= stream_capture_begins(self.calls, self.calls.start[launches], process) != NONE
        end, failed = self.calls.end[launches], self.calls.failed[launches]
        start, thread = self.calls.start[launches], self.calls.thread[launches]
        order = np.lexsort((-end, start, thread))
        start, end, ran, failed, thread = (one[order] for one in (start, end, ran, failed, thread))
        offset = thread.astype(np.int64) << 50  # so that one running maximum serves all threads
        number = np.cumsum(np.append(True, (start + offset)[1:] >= np.maximum.accumulate(end + offset)[:-1])) - 1
        has_ran = np.bincount(number, ran | failed) > 0  # by outermost launch
        lost = int(np.count_nonzero(~has_ran))
        if lost:
            replays = len(self.calls.named("GraphLaunch"))
            of = f"{lost} of {len(has_ran)} launches"
            hint = " (replays of graphs among them: the time between replays is unknown, not idle)" if replays else ""
            yield Finding(ERROR, "launches_without_kernels", lost, lost / len(has_ran), f"{of} have no kernel{hint}: their"
                          " time is missing from every table; synchronize before the capture ends, or capture less")  # fmt: skip

    def _repeated(self) -> Iterator[Finding]:
        """A launch runs one kernel, but for those of graphs."""
        graphs = self.calls.named("GraphLaunch")
        kernels = np.flatnonzero(self.has_call & (self.work.kind == 0) & (self.work.node == NONE))
        count = (
            np.bincount(self.attribution.launch_row[kernels], minlength=len(self.calls.start))
            if len(kernels)
            else np.zeros(0)
        )
        if len(count):
            count[graphs] = 0
            if repeated := int(np.count_nonzero(count > 1)):
                yield Finding(WARNING, "launched_twice", repeated, 0, f"{repeated} calls launched several kernels, or ids are"
                              " wrong: some kernels may be in the range of another")  # fmt: skip

    def graphs(self) -> Iterator[Finding]:
        if count := np.count_nonzero(self.work.kind == KINDS.index("graph")):
            yield Finding(WARNING, "graphs_as_one", count, 0, f"{count} replays of CUDA graphs were recorded as one activity"
                          " each: their kernels are not known; capture with --cuda-graph-trace=node")  # fmt: skip
        unknown = np.flatnonzero(self.attribution.node_unknown)
        if self.capture.is_torch:
            replays = self.calls.named("GraphLaunch")
            is_replay = np.zeros(len(self.calls.start) + 1, bool)
            is_replay[replays] = True
            unknown = np.flatnonzero(is_replay[self.attribution.launch_row] & (self.work.node == NONE))
        if len(unknown):
            yield Finding(WARNING, "nodes_not_recorded", len(unknown), self.share(unknown), f"{len(unknown)} activities of"
                          " replayed CUDA graphs belong to the range that launched the replay: the capture of their graph is"
                          " not in the recording, or not certain; record from the start of the program")  # fmt: skip

    def steps(self) -> Iterator[Finding]:
        """Steps without kernels, though others have some; and steps of different work."""
        if "step" not in self.ranges.names or not self.has_call.any():
            return
        mine = self._of_window(np.flatnonzero(self.ranges.name == self.ranges.names.index("step")))
        kernels, launches = self.attribution.launch_row[self.has_call & self.is_kernel], self.calls.named(*LAUNCHES)
        process_of_call, processes = process_of(self.calls.threads), np.unique(process_of(self.ranges.thread[mine]))
        for number in processes.tolist():
            steps = mine[process_of(self.ranges.thread[mine]) == number]
            count, launched = (self._calls_in(steps, rows, process_of_call == number) for rows in (kernels, launches))
            of = f" of process {number >> 24 & THREAD_BITS}" if len(processes) > 1 else ""
            if empty := int(np.count_nonzero((count == 0) & ((launched > 0) | (count.max() == 0)))):
                yield Finding(ERROR, "steps_without_kernels", empty, empty / len(steps), f"{empty} of {len(steps)} steps{of}"
                              " hold no kernel: their kernels are lost, so means over steps are wrong")  # fmt: skip
            elif count.min() < count.max():
                severity = ERROR if count[-1] < count[:-1].min() * 0.9 else WARNING
                yield Finding(severity, "steps_vary", int(np.count_nonzero(count != np.median(count))), 0, f"steps{of} hold"
                              f" between {count.min()} and {count.max()} kernels, the last {count[-1]}: the program does"
                              " different work in them, or the trace stopped early")  # fmt: skip

    def _calls_in(self, steps: np.ndarray, calls: np.ndarray, is_of_process: np.ndarray) -> np.ndarray:
        """How many of these calls, given by row, begin in each of the steps of a process."""
        start, end, count = self.ranges.start[steps], self.ranges.end[steps], np.zeros(len(steps), np.int64)
        for block in blocks(len(calls)):
            mine = calls[block][is_of_process[self.calls.thread[calls[block]]]]
            step = np.searchsorted(start, self.calls.start[mine], "right") - 1
            inside = (step >= 0) & (self.calls.start[mine] < end[step])
            count += np.bincount(step[inside], minlength=len(steps))
        return count

    def _of_window(self, steps: np.ndarray) -> np.ndarray:
        """The steps inside a range `measure`, if there is one."""
        if "measure" not in self.ranges.names:
            return steps
        windows = np.flatnonzero(self.ranges.name == self.ranges.names.index("measure"))
        start, end = self.ranges.start, self.ranges.end
        return steps[[any(start[w] <= start[s] and end[s] <= end[w] for w in windows) for s in steps]]

    def of_the_profiler(self) -> Iterator[Finding]:
        start, end = self.capture.overhead
        if len(start) and len(self.work):
            busy, lost = union(self.work.start, self.work.end), 0
            for begin, stop in zip(*union(start, end), strict=True):  # the part of it in which the GPU did nothing
                begin, stop = max(begin, busy[0][0]), min(stop, busy[1][-1])
                first, last = np.searchsorted(busy[1], begin, "right"), np.searchsorted(busy[0], stop)
                worked = np.minimum(busy[1][first:last], stop) - np.maximum(busy[0][first:last], begin)
                lost += max(int(stop - begin - worked.sum()), 0)
            span = max(int(busy[1][-1] - busy[0][0]), 1)
            if lost > MUCH_OVERHEAD * span:
                yield Finding(WARNING, "profiler_overhead", len(start), lost / span, f"the GPU did nothing for {lost / 1e6:,.1f}"
                              f" ms, {100 * lost / span:.0f} % of the recorded time, while the profiler itself was busy: these"
                              " gaps are not the program's")  # fmt: skip
        for level, text in self.capture.messages:
            text = text[:300].removesuffix(".")
            if LOSSES.search(text) and not NO_LOSS.search(text):
                yield Finding(
                    ERROR, "nsys_lost_events", 1, 0, f"nsys: {text}: times may be too small; capture less at a time"
                )
            elif level >= 3 and not OF_CPU_SAMPLING.search(text):
                yield Finding(ERROR, "nsys_error", 1, 0, f"nsys: {text}: what it failed to record is missing")
            elif level >= 2:
                code = "nsys_hedge" if HEDGE.search(text) else "nsys_warning"
                yield Finding(WARNING, code, 1, 0, f"nsys: {text}: nothing is known to be lost")

    def of_the_file(self) -> Iterator[Finding]:
        if self.capture.facts.get("whole_microseconds"):
            yield Finding(
                WARNING, "whole_microseconds", 0, 0, "times are whole microseconds: a kernel of 0.9 µs counts as 0 or 1"
            )
        if count := self.attribution.crossing:
            yield Finding(WARNING, "ranges_cross", count, 0, f"{count} ranges that were pushed and popped end after the one"
                          " around them on their thread, which is impossible: times of ranges are wrong")  # fmt: skip
        nameless = set(distinct(self.calls.name).tolist()) - self.calls.names.keys()
        if nameless:
            yield Finding(WARNING, "calls_without_names", len(nameless), 0, "API calls have no names, so lost launches cannot"
                          " be counted; export the complete report")  # fmt: skip


def union(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The starts and ends of the time that is covered by at least one interval."""
    order = np.argsort(start, kind="stable")
    start, reached = start[order], np.maximum.accumulate(end[order])
    is_first = np.append(True, start[1:] > reached[:-1])
    return start[is_first], reached[np.append(is_first[1:], True)]
