"""The time of the host by thread, phase and function: its CUDA calls, calls of the operating system's runtime, and
sampled stacks. Without a GPU, the calls are operators."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from kernel_tables.attribution import Chains, Paths
from kernel_tables.capture import THREAD_BITS, process_of
from kernel_tables.intervals import unions
from kernel_tables.profile import Profile
from kernel_tables.steps import phases_and_parts

CALLS, SAMPLES = ("cuda", "osrt"), ("python", "sample")  # sources; "none" is the time of ranges in no call
UNKNOWN = "(unknown)"  # a function
COLUMNS = (
    "process", "thread", "where", "source", "function", "calls", "time_ns", "own_ns", "samples", "estimated_ns",
    "launches", "us_per_launch",
)  # fmt: skip


def host_table(profile: Profile, step_name: str = "step") -> pd.DataFrame:
    """One row per thread, phase, source, and function that was called or sampled there. A call counts in the phase in
    which it begins.

    - `time_ns` is the time that the thread spent in calls of the function, `own_ns` the same without the calls inside
      them. A row for the time in no call stands for the ranges of the thread: its own times add up to what they cover.
    - `us_per_launch` is `own_ns` over the activities that all threads launched in the phase.
    - `estimated_ns` is an estimate of the time in a sampled function: its samples times the median time from a sample
      to the next."""
    events = pd.concat(_events(profile), ignore_index=True)
    ranges, chains = profile.capture.ranges, Chains(profile.capture.path, profile.capture.ranges)
    node = chains.at_each(events["start"].to_numpy(), events["thread"].to_numpy())
    parent, innermost = chains.finished()
    paths = Paths(parent, ranges.name[innermost], ranges.names)  # by the rule of attribution
    events["where"] = np.array(phases_and_parts(paths.tuples, step_name)[0], object)[paths.of_node[node]]
    is_sample = events["source"].isin(SAMPLES)
    events["samples"], events["calls"] = is_sample, events["source"].isin(CALLS)
    events["own_ns"] = _own_ns(events)
    groups = events.groupby(["thread", "where", "source", "function"])
    table = groups[["calls", "samples", "own_ns"]].sum().astype("int64").reset_index()
    covered, group = unions(*(events[name].to_numpy() for name in ("start", "end")), groups.ngroup().to_numpy())
    table["time_ns"] = pd.Series(covered.lengths_ns).groupby(group).sum().reindex(table.index, fill_value=0)
    is_none = table["source"] == "none"
    table["time_ns"] = table["time_ns"].where(~is_none, table["own_ns"])
    table = table[~is_none | (table["own_ns"] > 0)]

    samples = events[is_sample].sort_values("start")
    periods = samples.groupby(["source", "thread"])["start"].diff().groupby(samples["source"]).median()
    is_sample = table["source"].isin(SAMPLES)  # samples have no times, calls no estimate
    estimated_ns = table["samples"] * table["source"].map(periods).astype("float64")
    phases = phases_and_parts(profile.paths, step_name)[0]
    launches = pd.Series(np.bincount(profile.attribution.launch_path, minlength=len(phases))).groupby(phases).sum()
    table = table.assign(
        process=process_of(table["thread"].to_numpy()) >> 24 & THREAD_BITS,
        thread=table["thread"].to_numpy() & THREAD_BITS,
        time_ns=table["time_ns"].astype("Int64").mask(is_sample),
        own_ns=table["own_ns"].astype("Int64").mask(is_sample),
        estimated_ns=estimated_ns.round().astype("Int64").where(is_sample),
        launches=table["where"].map(launches).fillna(0).astype("int64"),
    )
    table["us_per_launch"] = table["own_ns"].astype("float64") / 1e3 / table["launches"].replace(0, np.nan)
    order = {"process": True, "thread": True, "where": True, "own_ns": False, "samples": False, "function": True}
    table = table[[*COLUMNS]].sort_values(list(order), ascending=list(order.values()), ignore_index=True)
    return table.replace({"source": {"cuda": "operator"}}) if profile.is_cpu_only else table


def missing_sources(profile: Profile, table: pd.DataFrame) -> Iterator[str]:
    """What the capture lacks for the table, and the option that records it."""
    if profile.capture.is_torch:
        yield "PyTorch's profiler records no calls of the OS runtime and samples no stacks; nsys does both"
        return
    samples = table[table["source"].isin(SAMPLES)]
    if not (table["source"] == "osrt").any():
        yield "the capture holds no calls of the OS runtime (nsys profile --trace=cuda,nvtx,osrt)"
    if samples.empty:
        yield "the capture holds no sampled stacks (nsys profile --python-sampling=true, or --sample=process-tree)"
    elif (samples["source"] == "python").any() and (samples["function"] == UNKNOWN).all():
        yield "the export holds no frames of its Python samples (nsys export --type sqlite --include-blobs=true)"


def _events(profile: Profile) -> Iterator[pd.DataFrame]:
    """The calls and samples of every source that the capture contains, and its ranges: source, thread (global id),
    start, end, function. A sample has no duration."""
    capture, calls, ranges = profile.capture, profile.capture.calls, profile.capture.ranges
    capture.load_call_ends()
    keys, name = np.unique(calls.name, return_inverse=True)
    cuda = {
        "start": calls.start, "end": calls.end, "name": name.reshape(-1),
        "thread": calls.threads[calls.thread], "names": [calls.names.get(key, UNKNOWN) for key in keys.tolist()],
    }  # fmt: skip
    of_ranges = {
        "start": ranges.start, "end": ranges.end, "name": np.zeros(len(ranges), np.int64), "thread": ranges.thread,
        "names": ["(in no call)"],
    }  # fmt: skip
    for source, part in {"cuda": cuda, **capture.source.host_events(), "none": of_ranges}.items():
        functions = np.array([*part["names"], UNKNOWN], object)[part["name"]]  # a missing name is the last
        columns = {"thread": part["thread"], "start": part["start"], "end": part.get("end", part["start"])}
        yield pd.DataFrame(columns).assign(source=source, function=functions)


def _own_ns(events: pd.DataFrame) -> np.ndarray:
    """The time of each event in which, of all that are open on its thread, it is the one that began last. Of events
    that begin together, the shorter is inside; a call is inside of its range."""
    thread, start, end = (events[name].to_numpy() for name in ("thread", "start", "end"))
    order = np.lexsort((events["source"] != "none", -end, start, thread))
    own, open_now, thread_now = (end - start).tolist(), [], None
    starts, ends = start.tolist(), end.tolist()
    for index, number in zip(order.tolist(), thread[order].tolist(), strict=True):
        now, stop = starts[index], ends[index]
        if number != thread_now:
            open_now, thread_now = [], number
        while open_now and ends[open_now[-1]] <= now:
            open_now.pop()
        for around in reversed(open_now):  # from the innermost, which has the time until its end
            if now >= stop:
                break
            if ends[around] > now:
                own[around] -= min(stop, ends[around]) - now
                now = ends[around]
        open_now.append(index)
    return np.array(own, np.int64)
