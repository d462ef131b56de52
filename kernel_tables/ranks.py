"""The ranks of a run, the cost of communication between them, and their collectives.

nsys captures each process of a run in its own file, or all of them in one, where their correlation ids collide; both
work. Every capture has its own clock, so no duration may span two of them.

All ranks of a communicator launch its collectives in the same order, so the k-th in a step of one rank belongs to the
k-th of the others; if the communicator is unknown, one of all ranks is assumed. A kernel of NCCL also waits until the
other ranks have arrived: its shortest duration over the ranks is the transfer, and the remaining time on the other
ranks is waiting for the slowest rank.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np
import pandas as pd

from kernel_tables.capture import NONE, operation_named, process_of
from kernel_tables.errors import RANK_KEY, RANKS_KEY, Finding, NotConserved, finding
from kernel_tables.intervals import Intervals, covered_ns, difference, union
from kernel_tables.profile import Profile
from kernel_tables.steps import NO_STEP, Scope, measured_steps

STEP = ["rank", "device", "step"]
STEP_COLUMNS = [  # of `communication`
    *STEP, "step_ns", "compute_ns", "exposed_communication_ns", "exposed_memory_ns", "idle_ns", "communication_ns",
    "overlapped_ns", "collectives", "bytes", "transfer_ns", "waiting_ns",
]  # fmt: skip
COLLECTIVE_COLUMNS = [
    *STEP, "number", "operation", "range", "kernel", "bytes", "start_ns", "duration_ns", "exposed_ns", "transfer_ns",
    "waiting_ns", "algorithm_gb_per_s", "bus_gb_per_s",
]  # fmt: skip


@dataclass(frozen=True)
class Rank:
    """One process of a run. Its profile may contain other processes, too."""

    number: int
    profile: Profile
    process: int  # global id; in a capture without work, that of the first range, NONE if there is none

    def steps(self, step_name: str) -> np.ndarray:
        """The numbers of the ranges that are its measured steps, in order of time. Steps without work are included, so
        that steps of several ranks can be matched by number."""
        ranges, steps = self.profile.capture.ranges, measured_steps(self.profile, step_name)
        return steps[process_of(ranges.thread[steps]) == self.process]

    @property
    def devices(self) -> list[int]:
        """The numbers of its devices in its capture; -1 for the CPU."""
        work = self.profile.capture.activities
        return np.unique(work.device[work.process == self.process]).tolist()


def ranks_of(profiles: Sequence[Profile]) -> list[Rank]:
    """The ranks: numbered as the captures say, if each contains one process and names its rank; else in the order of
    the captures, within one by device, then by process.

    A capture in which nothing ran on a device counts as one rank, so that later ones keep their numbers."""
    processes = []
    for profile in profiles:
        work, ranges = profile.capture.activities, profile.capture.ranges
        ids = np.unique(work.process).tolist() or ([int(process_of(ranges.thread[0]))] if len(ranges) else [NONE])
        first = {process: int(work.device[work.process == process].min(initial=1 << 32)) for process in ids}
        processes += [(profile, process) for process in sorted(ids, key=lambda process: (first[process], process))]
    stated_numbers = numbers_in_run(profiles) if len(processes) == len(profiles) else None
    ranks = [Rank(number, *one) for number, one in zip(stated_numbers or range(len(processes)), processes, strict=True)]
    return sorted(ranks, key=lambda rank: rank.number)


def numbers_in_run(profiles: Sequence[Profile]) -> list[int] | None:
    """The rank that each capture names; None if one names none, or two name the same."""
    texts = [profile.metadata.get(RANK_KEY, "") for profile in profiles]
    numbers = [int(text) for text in texts if text.isascii() and text.isdigit()]
    return numbers if len(set(numbers)) == len(texts) else None


def ranks_in_run(ranks: Sequence[Rank]) -> int:
    """The number of ranks in the run, as its captures say, but at least the number of `ranks`."""
    counts = [rank.profile.metadata.get(RANKS_KEY, "") for rank in ranks]
    return max([len(ranks), *(int(count) for count in counts if count.isascii() and count.isdigit())])


def communication(ranks: Sequence[Rank], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device and measured step, with STEP_COLUMNS.

    A sum over the collectives is missing if there are none, or it is missing for one of them. Raises NotConserved if
    the parts of a step do not add up to it."""
    devices = _steps_by_device(ranks, step_name)
    if not devices:  # no device has a step in which anything ran
        return pd.DataFrame(columns=STEP_COLUMNS, dtype="Int64")
    by_step = _match_collectives(ranks, devices).groupby(STEP)
    sums = by_step[["bytes", "transfer_ns", "waiting_ns"]].agg(lambda column: column.sum(skipna=False))
    table = pd.concat([steps.parts() for steps in devices], ignore_index=True)
    table = table.join(by_step.size().rename("collectives"), on=STEP).join(sums, on=STEP)
    return table.assign(collectives=table["collectives"].fillna(0).astype("int64"))[STEP_COLUMNS]


def collectives(ranks: Sequence[Rank], step_name: str = "step") -> pd.DataFrame:
    """One row per rank, device, step and collective, with COLLECTIVE_COLUMNS.

    `bytes` is what the name of a range says, else the call of NCCL or PyTorch. transfer_ns and waiting_ns are missing
    with one rank, if the run had more ranks than are given, and in steps in which the ranks of a communicator did not
    run the same collectives."""
    return _match_collectives(ranks, _steps_by_device(ranks, step_name))[COLLECTIVE_COLUMNS]


def findings_of_ranks(ranks: Sequence[Rank], step_name: str = "step") -> list[Finding]:
    """The findings about several ranks: on their numbers of steps, or if these are equal, on their collectives. A
    process without steps does not count if its capture contains several processes."""
    process_counts = Counter(rank.profile for rank in ranks)
    step_counts = {rank: len(rank.steps(step_name)) for rank in ranks}
    counts = {rank.number: count for rank, count in step_counts.items() if count or process_counts[rank.profile] == 1}
    most = max(counts.values(), default=0)
    if fewer := [f"rank {number}: {count}" for number, count in counts.items() if count != most]:
        fact = f"ranks hold up to {most} ranges {step_name!r}, others fewer ({', '.join(fewer)})"
        advice = "steps of ranks are matched by number; capture the same steps of all ranks"
        return [finding("ranks_differ", f"{fact}: {advice}")]
    table = _match_collectives(ranks, _steps_by_device(ranks, step_name))
    if steps := sorted(set(table.loc[(table["size"] > 1) & table["transfer_ns"].isna(), "step"])):
        fact = f"ranks ran different collectives in steps {', '.join(map(str, steps[:5]))}"
        meaning = "there, transfer is not distinguished from waiting for the slowest rank; capture all ranks of the run"
        return [finding("collectives_differ", f"{fact}: {meaning}")]
    return []


def _steps_by_device(ranks: Sequence[Rank], step_name: str) -> "list[_DeviceSteps]":
    scopes = {profile: Scope(profile, step_name) for profile in dict.fromkeys(rank.profile for rank in ranks)}
    requests = {profile: _requests_by_row(scope) for profile, scope in scopes.items()}
    return [
        _DeviceSteps(rank, device, scopes[rank.profile], requests[rank.profile])
        for rank in ranks
        for device in rank.devices
    ]


class _DeviceSteps:
    """The steps of a rank on one device. Masks and `step` are by activity of its profile."""

    def __init__(self, rank: Rank, device: int, scope: Scope, requests: dict[int, tuple]):
        self.rank, self.device, self.scope, self.requests = rank, device, scope, requests
        work, steps = scope.activities, rank.steps(scope.step_name)
        # What this rank ran on this device at a time that can be, in a step or not.
        self.is_here = (work.process == rank.process) & (work.device == device) & rank.profile.timed
        self.is_communication = self.is_here & scope.is_of_class("communication")
        # The time in which a kernel that is not communication ran on this device.
        self.compute = self._time_of(self.is_here & scope.is_kernel & ~self.is_communication)
        number = np.full(len(scope.ranges) + 1, NO_STEP)  # the last entry serves activities in no range
        number[steps] = np.arange(len(steps))
        # The number of the step that launched each activity; NO_STEP outside steps, and for other ranks.
        self.step = np.where(self.is_here, number[rank.profile.enclosing(scope.step_name)], NO_STEP)
        self.windows = self._find_windows(steps)

    def _time_of(self, mask: np.ndarray) -> Intervals:
        return union(self.scope.activities.start[mask], self.scope.activities.end[mask])

    def _find_windows(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """When every step, given by the numbers of their ranges, began and ended on this device.

        If all that the steps launched here ran inside their ranges, since the program waited for the device, the
        windows are these ranges. If the program runs ahead in any step, each window lasts from the start of the step's
        first activity here to the start of the next window, and the last one to the end of all activities of the steps.
        """
        ranges, work, rows = self.scope.ranges, self.scope.activities, np.flatnonzero(self.step != NO_STEP)
        begin_ns, end_ns = ranges.start[steps], ranges.end[steps]
        step, starts_ns, ends_ns = self.step[rows], work.start[rows], work.end[rows]
        if (begin_ns[step] <= starts_ns).all() and (ends_ns <= end_ns[step]).all():
            return begin_ns, end_ns
        last_ns = int(ends_ns.max())
        begin_ns = np.full(len(steps), last_ns)
        np.minimum.at(begin_ns, step, starts_ns)
        begin_ns = np.minimum.accumulate(begin_ns[::-1])[::-1]  # a step without work here has no duration
        return begin_ns, np.append(begin_ns[1:], last_ns)

    def parts(self) -> pd.DataFrame:
        """The time of every step by parts; computation has priority, then communication, then memory operations. Raises
        NotConserved unless the parts add up to the step, to the nanosecond."""
        transfers, windows = self._time_of(self.is_communication), self.windows
        memory = self._time_of(self.is_here & self.scope.is_memory)
        parts = {
            "compute_ns": covered_ns(self.compute, *windows),
            "exposed_communication_ns": covered_ns(difference(transfers, self.compute), *windows),
            "exposed_memory_ns": covered_ns(difference(memory, self.compute, transfers), *windows),
        }
        step_ns, communication_ns = windows[1] - windows[0], covered_ns(transfers, *windows)
        parts["idle_ns"] = step_ns - covered_ns(self._time_of(self.is_here), *windows)
        if (sum(parts.values()) != step_ns).any():
            step = f"a step of rank {self.rank.number} on device {self.device}"
            raise NotConserved(f"the parts of {step} do not add up to its length")
        overlapped_ns = communication_ns - parts["exposed_communication_ns"]
        more = {"step_ns": step_ns, "communication_ns": communication_ns, "overlapped_ns": overlapped_ns}
        place = {"rank": self.rank.number, "device": self.device, "step": np.arange(len(step_ns))}
        return pd.DataFrame(place | parts | more)

    def collectives(self) -> pd.DataFrame:
        """The collectives, in the order in which each step launched them."""
        work, profile = self.scope.activities, self.rank.profile
        rows = np.flatnonzero(self.is_communication & (self.step != NO_STEP))
        launch_ns = np.where(self.scope.launch_row != NONE, self.scope.launch_ns, work.start)
        rows = rows[np.lexsort((work.start[rows], launch_ns[rows], self.step[rows]))]
        step, start_ns, duration_ns = self.step[rows], work.start[rows], self.scope.duration_ns[rows]
        paths = [profile.paths[path] for path in profile.attribution.path[rows].tolist()]
        kernels = [work.names[name] for name in work.name[rows].tolist()]
        said = [_said_by_ranges(path) for path in paths]
        requested = [self.requests.get(row, (None, None, None)) for row in rows.tolist()]
        in_names = r"(?:gloo:|nccl(?:Dev)?Kernel_)(\w+)"  # as in ncclDevKernel_AllReduce_Sum_f32_RING_LL
        operations = [
            of_request[0] or _operation_in(in_names, kernel) or of_range[0] or "unknown"
            for of_request, kernel, of_range in zip(requested, kernels, said, strict=True)
        ]
        return pd.DataFrame(
            {
                "rank": self.rank.number,
                "device": self.device,
                "step": step,
                "number": np.arange(len(rows)) - np.searchsorted(step, step),  # in its step
                "operation": operations,
                "range": [path[-1] if path else "" for path in paths],
                "kernel": kernels,
                "bytes": pd.array([size for _, size in said], "Int64"),
                "requested_bytes": pd.array([size for _, size, _ in requested], "Int64"),
                "counted_by_nccl": not profile.capture.is_torch,
                "communicator": pd.Series([communicator for *_, communicator in requested], dtype=object),
                "start_ns": start_ns - self.windows[0][step],
                "duration_ns": duration_ns,
                "exposed_ns": duration_ns - covered_ns(self.compute, start_ns, start_ns + duration_ns),
            }
        )


def _requests_by_row(scope: Scope) -> dict[int, tuple]:
    """By row of a kernel of communication: operation, bytes and communicator, of PyTorch's profiler or NCCL's calls."""
    work, capture = scope.activities, scope.profile.capture
    rows = np.flatnonzero(scope.is_of_class("communication") & (scope.launch_row != NONE))
    if capture.is_torch:
        told = capture.source.torch_collectives()
        keys = zip(work.process[rows].tolist(), work.correlation[rows].tolist(), strict=True)
        return {row: told[key] for row, key in zip(rows.tolist(), keys, strict=True) if key in told}
    threads = capture.calls.threads[capture.calls.thread[scope.launch_row[rows]]].tolist()
    launches = list(zip(threads, scope.launch_ns[rows].tolist(), strict=True))
    return dict(zip(rows.tolist(), match_requests(capture.source.nccl_calls(), launches), strict=True))


def _match_collectives(ranks: Sequence[Rank], devices: Sequence[_DeviceSteps]) -> pd.DataFrame:
    """The collectives of all devices of the ranks, matched between them: COLLECTIVE_COLUMNS, and among others `size`,
    the number of the ranks of its communicator, 0 if that is unknown."""
    tables = [steps.collectives() for steps in devices]
    if not tables:  # nothing ran on a device
        return pd.DataFrame(columns=[*COLLECTIVE_COLUMNS, "size"])
    # Tables without rows might change the types of columns.
    table = pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)
    table["communicator"] = pd.factorize(table["communicator"])[0]  # -1 where it is missing
    sizes = table[["communicator", "rank", "device"]].drop_duplicates().groupby("communicator").size()
    given_ranks = max(len(ranks), len(table[["rank", "device"]].drop_duplicates()))
    size = table["communicator"].map(sizes).where(table["communicator"] >= 0, given_ranks)  # else all given ranks
    if ranks_in_run(ranks) > given_ranks:  # a communicator may have more ranks than are given
        size[:] = 0
    # Of these operations, NCCL counts the bytes of one rank; a single rank has no communicator.
    of_one = table["operation"].isin(["all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"])
    all_bytes = (table["requested_bytes"] * size).where(size > 1)
    requested = table["requested_bytes"].where(~(table["counted_by_nccl"] & of_one), all_bytes)
    table["size"], table["bytes"] = size, table["bytes"].fillna(requested)
    # Whether in its step all ranks of its communicator ran the same operations in the same order.
    group, rank = ["step", "communicator"], ["rank", "device"]
    sequences = table.groupby([*group, *rank])["operation"].agg(tuple).groupby(level=group).agg(["size", "nunique"])
    sequences = sequences.loc[pd.MultiIndex.from_frame(table[group])].reset_index(drop=True)
    is_matched = (sequences["size"] == size) & (sequences["nunique"] == 1) & (size > 1)
    table["place"] = table.groupby([*group, *rank]).cumcount()
    shortest = table.groupby([*group, "place"])["duration_ns"].transform("min")
    table["transfer_ns"] = shortest.astype("Int64").where(is_matched)
    table["waiting_ns"] = table["duration_ns"] - table["transfer_ns"]
    # A byte per nanosecond is 10^9 bytes a second.
    table["algorithm_gb_per_s"] = (table["bytes"] / table["transfer_ns"].replace(0, pd.NA)).astype("Float64")
    # The bandwidth of the busiest link ÷ that of the algorithm, as in NCCL's own tests; missing for other operations.
    factors = table["operation"].map({"all-reduce": 2.0, "all-gather": 1.0, "reduce-scatter": 1.0, "all-to-all": 1.0})
    factors = (factors * (size - 1) / size).where(~table["operation"].isin(["broadcast", "reduce"]), 1.0)
    table["bus_gb_per_s"] = table["algorithm_gb_per_s"] * factors.astype("Float64")
    return table


def _said_by_ranges(path: Sequence[str]) -> tuple[str | None, int | None]:
    """The operation and the bytes of the innermost range that names either, as in `all-reduce, bytes = 26214400`: the
    bytes that are reduced or gathered on one rank."""
    operations = r"^(all[-_]reduce|all[-_]gather|reduce[-_]scatter|all[-_]to[-_]all|broadcast|reduce)\b"
    for name in reversed(path):
        operation, size = _operation_in(operations, name), re.search(r"\bbytes = (\d+)", name)
        if size or operation:
            return operation, size and int(size[1])
    return None, None


def _operation_in(pattern: str, name: str) -> str | None:
    """The operation, as "all-reduce", that the group of a pattern finds in a name; None without one."""
    match = re.search(pattern, name)
    return operation_named(re.sub("[-_]", "", match[1]).lower()) if match else None


def match_requests(calls: Iterable, kernels: Sequence[tuple[int, int]]) -> list[tuple]:
    """What was requested of each of `kernels` of NCCL, given by the (thread, time) of its launch: operation, bytes in
    sum, communicator, each None if its calls do not tell it or differ in it. `calls` (NcclCall of a Source) are sorted
    by thread, then by time.

    A call launches a kernel itself, unless it is between ncclGroupStart and ncclGroupEnd: then the outermost
    ncclGroupEnd launches what all calls between them request (NCCL's manual, "Group Calls"). Nothing is known if the
    kernel was launched in none of `calls`, or in a group that began before the capture; nor are bytes if one call or
    group launched several kernels."""
    launches = [(NONE, NONE, NONE, [])]  # thread, start and end of what launches, and what it launches; first: nothing
    for thread, of_thread in groupby(calls, attrgetter("thread")):
        group, depth, last_ns = [], 0, -1  # depth: how many groups are open
        for call in of_thread:
            if call.end <= last_ns:
                continue  # NCCL itself made this call, inside the previous one
            last_ns = call.end
            if change := {"ncclGroupStart": 1, "ncclGroupEnd": -1}.get(call.name):
                depth += change
            else:
                group.append(call)
            if depth <= 0:  # below 0, a group began before the capture, and what is in it is not known
                launches.append((thread, call.start, call.end, group))
                group, depth = [], 0
    starts, found = [launch[:2] for launch in launches], []
    for thread, time_ns in kernels:
        index = bisect_right(starts, (thread, time_ns)) - 1  # the last call before the launch
        found.append(index if launches[index][0] == thread and time_ns < launches[index][2] else 0)

    def only(values: set):
        return values.pop() if len(values) == 1 else None

    kernel_counts, requests = Counter(found), []
    for index in found:
        *_, group = launches[index]
        sizes = [call.bytes for call in group]
        is_known = bool(sizes) and None not in sizes and kernel_counts[index] == 1
        operation = only({operation_named(call.name.removeprefix("nccl").lower()) for call in group})
        requests.append((operation, sum(sizes) if is_known else None, only({call.communicator for call in group})))
    return requests
