"""A capture as tables: `with Trace(path) as trace: trace.kernels()`.

Times are integer nanoseconds on the capture's own clock; processes and threads are nsys's global ids. The rule that
gives activities to ranges stands in attribution.py.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables.activities import KINDS, TABLES, Activities, read_activities
from kernel_tables.attribution import Attribution, Ranges, attribute, in_opening_order
from kernel_tables.capture import MISSING, NVTX, RUNTIME, Capture, process_of
from kernel_tables.errors import TraceError
from kernel_tables.paths import BEFORE_CAPTURE, NO_RANGE, Paths
from kernel_tables.range_names import coded_names, without_last_numbers
from kernel_tables.threads import NONE

if TYPE_CHECKING:
    import pandas as pd

    from kernel_tables.completeness import Finding


class Trace:
    """An nsys SQLite export, an .nsys-rep, either of them gzipped, or a file with the same tables.

    EXTRA_RULES are classes of one's own kernels, tried before the table of classes. Raises TraceError with one line
    where the file cannot be read.
    """

    def __init__(self, path: str | os.PathLike, extra_rules=()):
        self.capture = Capture(path)
        self._extra_rules = extra_rules

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """None; what was unpacked or exported for reading is removed."""
        self.capture.close()

    @property
    def metadata(self) -> dict[str, str]:
        """What the export says of itself: EXPORT_SCHEMA_VERSION, EXPORT_PRODUCT_VERSION, CAPTURE_BACKEND, ..."""
        return self.capture.metadata

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The paths by path_id: names of ranges, inherited first, innermost last; () for no range."""
        return self.range_paths.tuples

    def activities(self) -> pd.DataFrame:
        """One row per kernel, memcpy, memset and replay of a whole CUDA graph.

        Columns: kind, name, class (categorical); start_ns, end_ns, duration_ns (on the GPU); process, thread (global
        ids, the thread is the launching one, -1 without a launch); device, stream; launch_ns (start of the API call, NA
        without one); path_id (index into `paths`).
        """
        return _tables().activities(self)

    def range_instances(self) -> pd.DataFrame:
        """One row per range instance, in order of opening.

        Columns: instance (its number), name, domain (categorical), process, thread (global ids), start_ns, end_ns (of
        the NVTX range; the capture's end where it was never closed), path_id (of its full path, its own name last).
        """
        return _tables().range_instances(self)

    def enclosing(self, name: str) -> np.ndarray:
        """For each row of activities(), the instance of the outermost range NAME open at its launch, -1 if none."""
        outermost = self._outermost(name)
        return np.append(outermost, NONE)[self.activity_node]

    def ranges(self, under: str | None = None) -> pd.DataFrame:
        """One row per range name: range, instances, kernels, gpu_time_ns, memops, memop_time_ns.

        Inclusive: what nested ranges launched counts, once. Only ranges inside an instance of UNDER when given.
        """
        return _tables().ranges(self, under)

    def kernels(self, under: str | None = None) -> pd.DataFrame:
        """One row per range path x activity name.

        Columns: range (the path, joined with " > "), kernel, class, launches, total_ns, mean_ns, min_ns, max_ns, std_ns
        (the sample standard deviation, NaN for one launch).
        """
        return _tables().kernels(self, under)

    def classes(self, under: str | None = None) -> pd.DataFrame:
        """One row per class: class, kernels, launches, total_ns, share_of_gpu_time, largest_kernel, unknown_names."""
        return _tables().classes(self, under)

    def check(self, expected_steps: int | None = None, step_name: str = "step") -> list[Finding]:
        """What speaks against believing this capture's figures; see completeness.py."""
        from kernel_tables.completeness import findings

        return findings(self, expected_steps, step_name)

    def require_range(self, name: str) -> None:
        """Raises TraceError where no range has this name."""
        if self.range_paths.code(name) == NONE:
            there = ", ".join(repr(name) for name in dict.fromkeys(self.range_names[1][:8])) or "none at all"
            raise TraceError(f"{self.capture.path}: no range is named {name!r}; there are {there}: name one of them")

    @cached_property
    def columns(self) -> dict:
        """The columns read from the file by table; nothing else is read later but strings."""
        names = (RUNTIME, *TABLES, NVTX)
        return dict(zip(names, self.capture.columns(*names, of_text=without_last_numbers), strict=True))

    @cached_property
    def gpu_activities(self) -> Activities:
        """The activities as arrays."""
        return read_activities(self.capture, [self.columns[table] for table in TABLES], self.columns[RUNTIME])

    @cached_property
    def places(self) -> dict[str, np.ndarray]:
        """The device and the stream of each activity; read apart, since most tables do without."""
        tables = self.capture.places(*TABLES)
        return {name: np.concatenate([table[name] for table in tables]) for name in ("device", "stream")}

    @cached_property
    def activity_classes(self) -> list[str]:
        """The class of each of gpu_activities.names."""
        from kernel_tables.categories import classify

        names = self.gpu_activities.names
        kinds = np.zeros(len(names), np.int8)
        kinds[self.gpu_activities.name] = self.gpu_activities.kind
        of_kernels = iter(classify([n for n, k in zip(names, kinds, strict=True) if k == 0], self._extra_rules))
        return [next(of_kernels) if kind == 0 else KINDS[kind] for kind in kinds.tolist()]

    @cached_property
    def range_names(self) -> tuple[np.ndarray, list[str]]:
        events = self.columns[NVTX]
        return coded_names(events["text"], events["text_id"], self.capture.strings(events["text_id"]))

    @cached_property
    def range_arrays(self) -> Ranges:
        """The range instances as arrays, in order of opening; a range that was never closed ends with the capture."""
        events = self.columns[NVTX]
        end_ns = events["end"]
        if (end_ns == MISSING).any():
            end_ns = np.where(end_ns == MISSING, self.capture.last_time_ns(), end_ns)
        thread = events["thread"]
        return in_opening_order(events["start"], end_ns, thread, process_of(thread), self.range_names[0])

    @cached_property
    def attribution(self) -> Attribution:
        """The chain of ranges of every activity that has a launch, in the order of those activities."""
        launched = self.gpu_activities
        has = launched.launched
        return attribute(self.range_arrays, launched.launch_ns[has], launched.thread[has], launched.process[has])

    @cached_property
    def activity_node(self) -> np.ndarray:
        """The node of the attribution's forest of each activity, NONE without a range or a launch."""
        nodes = np.full(len(self.gpu_activities), NONE)
        nodes[self.gpu_activities.launched] = self.attribution.launch_node
        return nodes

    @cached_property
    def range_paths(self) -> Paths:
        """The paths as arrays."""
        return Paths(self.attribution, self.range_arrays.name, self.range_names[1])

    @cached_property
    def activity_path(self) -> np.ndarray:
        """The path id of each activity."""
        path = np.append(self.range_paths.of_node, NO_RANGE)[self.activity_node]
        return np.where(self.gpu_activities.launched, path, BEFORE_CAPTURE)

    def _outermost(self, name: str) -> np.ndarray:
        """For each node, the outermost range NAME in its chain, NONE if there is none."""
        forest = self.attribution
        is_named = self.range_arrays.name[forest.range] == self.range_paths.code(name)
        outermost = np.full(len(forest.parent) + 1, NONE)  # the last entry serves nodes without a parent
        for nodes in forest.levels():
            above = outermost[forest.parent[nodes]]
            outermost[nodes] = np.where((above == NONE) & is_named[nodes], forest.range[nodes], above)
        return outermost[:-1]


def _tables():
    """The module of tables; imported late, so that pandas can be imported while a capture is read."""
    from kernel_tables import tables

    return tables
