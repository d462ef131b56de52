"""The time of the host by thread, phase or range, and function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.attribution.keys import compact, grouped
from kernel_tables.host.events import Events, read_events
from kernel_tables.host.phases import OpenPhases
from kernel_tables.host.thread import Thread
from kernel_tables.reading.global_ids import process_number, thread_number
from kernel_tables.views.phases import phases_and_parts

if TYPE_CHECKING:
    import pandas as pd

BY = PHASE, RANGE = ("phase", "range")
KEYS = ["process", "thread", "where", "source", "function"]
FIGURES = ["calls", "time_ns", "own_ns", "samples", "samples_in_calls", "estimated_ns"]


def host_table(trace: CaptureArrays, by: str = PHASE, step_name: str = "step") -> pd.DataFrame:
    """One row per thread, phase (BY "range": innermost range), source and function that was called there.

    `time_ns` is the time in which the thread was in such a call, `own_ns` that without the calls made in it: on a
    thread that makes calls in a phase, it adds up to the phase, together with the time in no call. `us_per_launch` is
    `own_ns` over the activities launched there. Samples have a number, and an estimate of the time in that function and
    in no call: those outside of calls times the time between two samples.
    """
    import pandas as pd

    events = read_events(trace)
    if by == PHASE:
        phases = OpenPhases(trace, step_name)
        names = phases.names
    else:
        names, of_path = _numbered(phases_and_parts(events.paths, step_name)[1])
        innermost = of_path[events.path]
    rows, periods_ns = [], events.periods_ns()
    for thread, mine in _by_thread(events):
        told = Thread(events, mine, periods_ns, len(names))
        found = told.by_phase(phases.of(thread)) if by == PHASE else told.by_range(innermost[mine])
        rows += [(process_number(thread), thread_number(thread), names[where], *figures) for where, *figures in found]
    trace.capture.require_sound()
    table = pd.DataFrame(rows, columns=[*KEYS, *FIGURES]).astype(
        dict.fromkeys(("time_ns", "own_ns", "estimated_ns"), "Int64")
    )
    table["launches"] = table["where"].map(_launches(trace, by, step_name)).fillna(0).astype("int64")
    table["us_per_launch"] = table["own_ns"].astype("float64") / 1e3 / table["launches"].replace(0, np.nan)
    order = ["process", "thread", "where", "own_ns", "samples", "function"]
    return table.sort_values(order, ascending=[True] * 3 + [False] * 2 + [True], ignore_index=True)


def _numbered(labels: list[str]) -> tuple[list[str], np.ndarray]:
    """The distinct labels, and the number of each label among them."""
    number = {label: index for index, label in enumerate(dict.fromkeys(labels))}
    return list(number), np.array([number[label] for label in labels], np.int64)


def _by_thread(events: Events) -> Iterator[tuple[int, np.ndarray]]:
    """(global id, positions of its events) of every thread."""
    threads, index = compact(events.thread)
    yield from zip(threads.tolist(), grouped(index, len(threads)), strict=True)


def _launches(trace: CaptureArrays, by: str, step_name: str) -> dict[str, int]:
    """How many activities were launched in each phase or range."""
    labels = phases_and_parts(trace.range_paths.tuples, step_name)[BY.index(by)]
    counts = np.bincount(trace.activity_path, minlength=len(labels))
    launches: dict[str, int] = {}
    for label, count in zip(labels, counts.tolist(), strict=True):
        launches[label] = launches.get(label, 0) + count
    return launches
