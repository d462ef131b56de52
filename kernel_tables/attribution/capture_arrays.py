"""The arrays of a capture: what ran on the GPU, the ranges, and which activity belongs to which ranges.

Times are integer nanoseconds on the clock of the capture; processes and threads are nsys's global ids.
"""

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernel_tables.attribution import graph_replays, launches, rule
from kernel_tables.attribution.activities import KINDS, TABLES, Activities, read_activities
from kernel_tables.attribution.arrays import compact, concatenated, factorize, index_type, map_blocks
from kernel_tables.attribution.forest import Attribution
from kernel_tables.attribution.limits import BeyondLimits, require_text
from kernel_tables.attribution.paths import BEFORE_CAPTURE, NO_RANGE, Paths
from kernel_tables.attribution.ranges import NONE, Ranges, coded_names, in_opening_order, without_call_numbers
from kernel_tables.errors import TraceError, impossible
from kernel_tables.kernel_classes.categories import classify
from kernel_tables.kineto.capture_schema import CPU_DEVICE
from kernel_tables.reading.capture import CallFunctions, Capture
from kernel_tables.reading.schema import KERNEL, MISSING, NVTX, PLACE_COLUMNS, RUNTIME, SIZE_COLUMNS, WINDOW_KEY

MAX_NAME = 100  # characters of a name in a message


class LaunchSizes(NamedTuple):
    """The grid and the block of each activity as texts, "16x6x8"; "" if it is not a kernel, or the size is unknown."""

    grid: np.ndarray
    block: np.ndarray


class _CaptureRanges(NamedTuple):
    names: list[str]  # by code
    missing_name_count: int  # of names that are not in the capture
    unclosed_count: int  # the number of ranges that were never closed
    arrays: Ranges
    attributor: rule.RangeAttributor | None
    why_no_attributor: BeyondLimits | None


class _TablesRead(NamedTuple):
    columns: dict  # by table, all but the ranges
    ranges: _CaptureRanges


class CaptureArrays(AbstractContextManager):
    """The arrays of one capture, each made on first use. Use as a context manager."""

    def __init__(self, path: str | os.PathLike, extra_rules=(), *, up_to_damage: bool = False):
        """`extra_rules`: see classify. With `up_to_damage`, invalid JSON is read as far as it is valid."""
        self.capture = Capture(path, up_to_damage=up_to_damage)
        self._extra_rules = extra_rules
        self._with_details = False
        self._place_columns: list[dict] | None = None  # by table of TABLES, until `places` takes them

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file and removes what was unpacked or exported for reading."""
        self.capture.close()

    @property
    def metadata(self) -> dict[str, str]:
        """Facts about the export: EXPORT_SCHEMA_VERSION, EXPORT_PRODUCT_VERSION, CAPTURE_BACKEND, ..."""
        return self.capture.metadata

    @property
    def recorded_window(self) -> dict[str, object]:
        """Facts that `record` noted about its window; empty in other captures."""
        try:
            window = json.loads(self.metadata.get(WINDOW_KEY, "{}"))
        except ValueError:
            return {}
        return window if isinstance(window, dict) else {}

    def require_possible(self) -> None:
        """Raises ImpossibleCapture if this capture is impossible. Every table and command calls it."""
        self.capture.require_sound()
        _ = self.gpu_activities, self.range_names  # which raise if names are lost
        self._attributor()

    def enclosing(self, name: str) -> np.ndarray:
        """For each activity, the number of the outermost range `name` that is open at its launch, -1 if none is."""
        outermost, node = np.append(self._outermost(name), NONE).astype(np.int32), self.attribution.launch_node
        return map_blocks(lambda block: outermost[node[block]], len(node), np.int32)

    def require_range(self, name: str) -> None:
        """Raises TraceError if no range has this name."""
        if self.range_paths.code(name) == NONE:
            examples = ", ".join(repr(other[:MAX_NAME]) for other in self.range_names[:8]) or "none at all"
            raise TraceError(f"{self.capture.path}: no range is named {name!r}; there are {examples}: name one of them")

    @property
    def columns(self) -> dict:
        """The columns of activities and calls, by table. `gpu_activities` removes the columns of activities, and of
        calls the correlation ids and the threads (see `call_threads`)."""
        return self._tables_read.columns

    def expect_details(self) -> None:
        """Call this before the first use if `places` and `call_functions` will be needed: then they are read with the
        other columns, not separately."""
        self._with_details = True

    @cached_property
    def gpu_activities(self) -> Activities:
        """The activities as arrays."""
        tables = [self.columns[table] for table in TABLES]
        if "device" in tables[0]:  # details were expected
            self._place_columns = [{name: table.pop(name) for name in PLACE_COLUMNS} for table in tables]
        activities = read_activities(self.capture, tables, self.columns[RUNTIME])
        for table in TABLES:
            del self.columns[table]
        return activities

    @cached_property
    def places(self) -> dict[str, np.ndarray]:
        """The device and the stream of each activity; read separately unless `expect_details` was called."""
        tables = self._place_columns or [self.capture.read_columns(table, PLACE_COLUMNS) for table in TABLES]
        self._place_columns = None
        return {name: compact(concatenated([table.pop(name) for table in tables])) for name in PLACE_COLUMNS}

    @property
    def call_threads(self) -> np.ndarray:
        """The global id of the thread of every API call."""
        return self.gpu_activities.threads[self.columns[RUNTIME]["thread_index"]]

    def call_functions(self) -> CallFunctions:
        """The functions of the API calls, in the order of `columns`."""
        calls = self.columns[RUNTIME]
        if "end" not in calls or "name_id" not in calls:
            return self.capture.call_functions()
        name_id = calls.pop("name_id")  # takes memory, and is needed once
        return CallFunctions(calls["end"], name_id, self.capture.function_names(name_id))

    @cached_property
    def is_cpu_only(self) -> bool:
        """Whether the activities are operators of a program on the processor."""
        devices = self.places["device"] if self.capture.has(KERNEL, "deviceId") else []  # missing ones read as -1, too
        return bool(len(devices)) and bool((devices == CPU_DEVICE).all())

    @property
    def has_graphs_as_one(self) -> bool:
        """Whether replays of CUDA graphs are one activity each, without their kernels."""
        return bool((self.gpu_activities.kind == KINDS.index("graph")).any())

    @cached_property
    def launch_sizes(self) -> LaunchSizes:
        """The grid and the block of each activity."""
        columns = list(self.capture.read_columns(KERNEL, SIZE_COLUMNS).values())
        other_sizes = [""] * (len(self.gpu_activities) - len(columns[0]))  # kernels are the first activities
        grid, block = (np.append(_sizes_as_text(xyz), other_sizes) for xyz in (columns[:3], columns[3:]))
        return LaunchSizes(grid, block)

    @cached_property
    def activity_classes(self) -> list[str]:
        """The class of each of gpu_activities.names."""
        names = self.gpu_activities.names
        kinds = np.zeros(len(names), np.int8)
        kinds[self.gpu_activities.name] = self.gpu_activities.kind
        named_kinds = [(name, KINDS[kind]) for name, kind in zip(names, kinds.tolist(), strict=True)]
        kernels = [name for name, kind in named_kinds if kind == "kernel"]
        kernel_classes = dict(zip(kernels, classify(kernels, self._extra_rules), strict=True))
        return [kernel_classes[name] if kind == "kernel" else kind for name, kind in named_kinds]

    @property
    def range_names(self) -> list[str]:
        """The names of the ranges, by code. Raises ImpossibleCapture if the capture lacks some."""
        ranges = self._tables_read.ranges
        if ranges.missing_name_count:
            raise impossible(
                self.capture.path,
                "ranges_without_names",
                f"{ranges.missing_name_count} names of ranges are not among its strings: the export is cut short or"
                " damaged: export the report again",
            )
        return ranges.names

    @property
    def range_arrays(self) -> Ranges:
        """The range instances in order of opening; a range that was never closed ends with the capture."""
        return self._tables_read.ranges.arrays

    @property
    def unclosed_count(self) -> int:
        """The number of ranges that were never closed."""
        return self._tables_read.ranges.unclosed_count

    @cached_property
    def attribution(self) -> Attribution:
        """The chain of ranges of every activity."""
        activities, attributor = self.gpu_activities, self._attributor()
        creations = graph_replays.node_creations(self.capture, activities)
        with self._limits():
            if creations is not None and len(self.range_arrays):
                return graph_replays.attribute_with_replays(attributor, activities, creations, self.range_arrays)
            return attributor.attribution(activities.launch_ns, activities.thread_index, activities.threads)

    def _attributor(self) -> rule.RangeAttributor:
        ranges = self._tables_read.ranges
        with self._limits():
            if ranges.why_no_attributor:
                raise ranges.why_no_attributor
        return ranges.attributor

    @property
    def instance_nodes(self) -> np.ndarray:
        """The nodes that are instances of ranges: all ranges, and captured ranges once per replay."""
        attribution = self.attribution
        replayed = np.arange(attribution.first_replayed, len(attribution.parent))
        return np.append(np.arange(len(self.range_arrays)), replayed)

    @cached_property
    def range_paths(self) -> Paths:
        """The paths as arrays."""
        with self._limits():
            return Paths(self.attribution, self.range_arrays.name, self.range_names)

    @cached_property
    def activity_path(self) -> np.ndarray:
        """The path id of each activity."""
        return self._paths_of(self.attribution.activity_node)

    @cached_property
    def launch_path(self) -> np.ndarray:
        """The path id at the launch of each activity; for a replayed activity, without the captured ranges."""
        return self._paths_of(self.attribution.launch_node)

    def _paths_of(self, node: np.ndarray) -> np.ndarray:
        """The path id of each activity, given its `node`; BEFORE_CAPTURE for activities without a launch."""
        path_of_node = np.append(self.range_paths.of_node, NO_RANGE)  # the last entry is for activities in no range
        path_of_node = path_of_node.astype(index_type(len(self.range_paths)))
        launch_row = self.gpu_activities.launch_row

        def look_up(block: slice) -> np.ndarray:
            return np.where(launch_row[block] == launches.NO_LAUNCH, BEFORE_CAPTURE, path_of_node[node[block]])

        return map_blocks(look_up, len(launch_row), path_of_node.dtype)

    @cached_property
    def _tables_read(self) -> _TablesRead:
        """The columns and the ranges, which are computed while the kernels are still being read."""
        tables = (KERNEL, NVTX, RUNTIME, *(table for table in TABLES if table != KERNEL))
        with self.capture.reading(*tables, convert_text=without_call_numbers, with_details=self._with_details) as reads:
            ranges = self._ranges(reads[NVTX].result())
            del reads[NVTX]
        return _TablesRead({table: read.result() for table, read in reads.items()}, ranges)

    def _ranges(self, events: dict) -> _CaptureRanges:
        registered = self.capture.strings(events["text_id"])
        missing_names = set(factorize(events["text_id"])[0].tolist()) - registered.keys() - {MISSING}
        coded = coded_names(events["text"], events["text_id"], registered)
        end_ns = events["end"]
        unclosed_count = int((end_ns == MISSING).sum())
        if unclosed_count:
            end_ns = np.where(end_ns == MISSING, self.capture.last_time_ns(), end_ns)
        arrays = in_opening_order(events["start"], end_ns, events["thread"], coded.codes)
        attributor = why_no_attributor = None
        try:
            attributor = rule.RangeAttributor(arrays)
        except BeyondLimits as error:  # is raised later, where attributions are needed
            why_no_attributor = error
        return _CaptureRanges(coded.names, len(missing_names), unclosed_count, arrays, attributor, why_no_attributor)

    def require_text(self, path: np.ndarray, name: np.ndarray, limit: int) -> None:
        """Raises ImpossibleCapture if rows with these paths and names of activities exceed `limit` characters."""
        name_characters = np.array([len(text) for text in self.gpu_activities.names], np.int64)
        with self._limits():
            require_text(int(self.range_paths.characters[path].sum() + name_characters[name].sum()), limit)

    @contextmanager
    def _limits(self) -> Iterator[None]:
        """Raises ImpossibleCapture if the block raises BeyondLimits."""
        try:
            yield
        except BeyondLimits as error:
            raise impossible(self.capture.path, "too_many_open_ranges", str(error)) from error

    def _outermost(self, name: str) -> np.ndarray:
        """For each node, the outermost range `name` in its chain, NONE if none."""
        forest = self.attribution
        is_named = self.range_arrays.name[forest.range] == self.range_paths.code(name)
        outermost = np.full(len(forest.parent) + 1, NONE)  # the last entry is for nodes without a parent
        for nodes in forest.levels:
            above = outermost[forest.parent[nodes]]
            outermost[nodes] = np.where((above == NONE) & is_named[nodes], forest.range[nodes], above)
        return outermost[:-1]


def _sizes_as_text(xyz: list[np.ndarray]) -> np.ndarray:
    """Sizes as "16x6x8" from their three columns."""
    distinct, code = np.unique(np.stack(xyz), axis=1, return_inverse=True)
    texts = ["" if MISSING in size else "x".join(map(str, size)) for size in distinct.T.tolist()]
    return np.array(texts, dtype=object)[code.reshape(-1)]
