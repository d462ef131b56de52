"""A capture and what is derived from it: `with kernel_tables.read(path) as profile: profile.kernels()`.

Times are integer nanoseconds on the clock of the capture; processes and threads are nsys's global ids.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from kernel_tables import attribution, export, losses, tables, trace
from kernel_tables.capture import KINDS, Capture
from kernel_tables.classes import classify
from kernel_tables.errors import NOTES_KEY, WINDOW_KEY, Finding, TraceError

if TYPE_CHECKING:
    import pandas as pd


def read(path: str | os.PathLike, classes: Sequence = ()) -> Profile:
    """The profile of an nsys SQLite export, of JSON of torch.profiler, or of a file that `record` wrote; gzipped or
    not.

    `classes` are custom classes of kernels, tried before the built-in ones: see classes.users_rules. Raises TraceError,
    with one line, if the file cannot be read, and ImpossibleCapture, which is one, if what it says is impossible."""
    path = Path(path)
    if path.exists() and not path.is_file():  # to open a pipe may never end
        raise TraceError(f"{path}: a folder, a pipe or a device, not a capture; name the .sqlite or .json file")
    try:
        with path.open("rb") as file:
            begin = file.read(4096)
        capture = trace.read(path) if trace.is_json(begin, path) else export.read(path)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror or error}; check the path") from error
    return Profile(capture, classes)


class Profile(AbstractContextManager):
    """The tables of one capture, and what they are made of, each made on first use."""

    def __init__(self, capture: Capture, classes: Sequence = ()):
        """`classes`: see read."""
        self.capture = capture
        self._classes = classes
        self._groups: dict[int | None, tables.Group] = {}

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file and removes what was unpacked for reading."""
        self.capture.source.close()

    # Tables

    def activities(self) -> pd.DataFrame:
        """One row per kernel, memcpy, memset and replay of a whole CUDA graph. docs/capture-columns.md says what the
        columns of this table and of those below mean."""
        return tables.activities(self)

    def range_instances(self) -> pd.DataFrame:
        """One row per range instance, in order of opening."""
        return tables.range_instances(self)

    def ranges(self, under: str | None = None, process: int | None = None, tree: bool = False) -> pd.DataFrame:
        """One row per range name, or with `tree` per range path, inner ranges below outer ones.

        What nested ranges launched is included, once. With `under`, only ranges of this name and what is inside them
        count; with `process` (a global id), only those of this process. The same holds for the tables below."""
        return tables.as_frame(self.table("ranges", under, process, tree))

    def kernels(self, under: str | None = None, process: int | None = None) -> pd.DataFrame:
        """One row per range path and activity name."""
        return tables.as_frame(self.table("kernels", under, process))

    def classes(self, under: str | None = None, process: int | None = None) -> pd.DataFrame:
        """One row per class of kernels."""
        return tables.as_frame(self.table("classes", under, process))

    def table(
        self, name: str, under: str | None = None, process: int | None = None, tree: bool = False
    ) -> tables.Table:
        """The table "ranges", "kernels" or "classes", made without pandas."""
        return getattr(tables, "range_tree" if tree else name)(self, under, process)

    def check(
        self, expected_steps: int | None = None, step_name: str = "step", equal_steps: bool = False
    ) -> list[Finding]:
        """What is wrong or odd, errors first. For the arguments, see findings in check.py."""
        from kernel_tables.check import findings

        return findings(self, expected_steps, step_name, equal_steps=equal_steps)

    def diagnose(self, step_name: str = "step", rules: Sequence = ()) -> list:
        """Where time is lost, the largest gain first. For the arguments, see diagnose in diagnose.py."""
        from kernel_tables.diagnose import diagnose

        return diagnose(self, step_name, rules)

    # What the tables are made of

    @cached_property
    def attribution(self) -> attribution.Attribution:
        """Which ranges each activity belongs to."""
        return attribution.attribute(self.capture)

    @cached_property
    def lost_launches(self) -> np.ndarray:
        """The calls that launched something that was not recorded, see losses.py."""
        return losses.launches_without_kernels(self)

    @property
    def timed(self) -> np.ndarray:
        """By activity: whether its time can be. The others count as launches, and take no time."""
        has_time = self.attribution and self.capture.activities.has_time  # which attribution finds
        return np.ones(len(self.capture.activities), bool) if has_time is None else has_time

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The paths by path_id: names of ranges, outermost first; () for no range."""
        return self.attribution.paths.tuples

    @property
    def range_path(self) -> np.ndarray:
        """The path of each range, its own name last."""
        return self.attribution.paths.of_node[: len(self.capture.ranges)]

    def enclosing(self, name: str) -> np.ndarray:
        """For each activity, the number of the outermost range `name` that is open at its launch, -1 if none is."""
        ranges = self.capture.ranges
        return self.attribution.enclosing(np.array([one == name for one in ranges.names], bool)[ranges.name])

    def grouped(self, process: int | None = None) -> tables.Group:
        """The activities by path and name, see tables.grouped."""
        if process not in self._groups:
            self._groups[process] = tables.grouped(self, process)
        return self._groups[process]

    @cached_property
    def name_kinds(self) -> list[int]:
        """The kind of each of the activities' names, an index into KINDS."""
        work = self.capture.activities
        kinds = np.zeros(len(work.names), np.int8)
        kinds[work.name] = work.kind
        return kinds.tolist()

    @cached_property
    def activity_classes(self) -> list[str]:
        """The class of each of the activities' names; copies, fills and replays are classes of their own."""
        kinds = [KINDS[kind] for kind in self.name_kinds]
        classes = classify(self.capture.activities.names, self._classes)
        return [own if kind == "kernel" else kind for kind, own in zip(kinds, classes, strict=True)]

    def require_range(self, name: str) -> None:
        """Raises TraceError if no range has this name."""
        names = self.capture.ranges.names
        if name not in self.attribution.paths.names:
            examples = ", ".join(repr(other[:100]) for other in names[:8]) or "none at all"
            raise TraceError(f"{self.capture.path}: no range is named {name!r}; there are {examples}: name one of them")

    # What the capture says about itself

    @property
    def metadata(self) -> dict[str, str]:
        """Facts about the capture: EXPORT_SCHEMA_VERSION, EXPORT_PRODUCT_VERSION, CAPTURE_BACKEND, ..."""
        return self.capture.facts

    @property
    def recorded_window(self) -> dict[str, object]:
        """Facts that `record` noted about its window; empty in other captures."""
        try:
            window = json.loads(self.metadata.get(WINDOW_KEY, "{}"))
        except ValueError:
            return {}
        return window if isinstance(window, dict) else {}

    @property
    def notes(self) -> list[str]:
        """What JSON of torch.profiler lacks, a line each. Other captures have none; `check` says what they lack."""
        return [note for note in self.metadata.get(NOTES_KEY, "").split("\n") if note]

    @property
    def is_cpu_only(self) -> bool:
        """Whether the activities are operators of a program on the processor."""
        return self.capture.is_cpu_only
