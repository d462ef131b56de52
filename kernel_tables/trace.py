"""A capture as tables: `with Trace(path) as trace: trace.kernels()`.

Times are integer nanoseconds on the clock of the capture; processes and threads are nsys's global ids. The rule of
attribution is in attribution/rule.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_tables.attribution.capture_arrays import CaptureArrays
from kernel_tables.reading.schema import NOTES_KEY

if TYPE_CHECKING:
    import pandas as pd

    from kernel_tables.views.completeness import Finding


class Trace(CaptureArrays):
    """An nsys SQLite export, an .nsys-rep, JSON of torch.profiler, one of them gzipped, or a file with the same tables.

    `extra_rules` are custom classes of kernels, tried before the built-in ones. Raises TraceError with one line if the
    file cannot be read. Every table raises ImpossibleCapture, which is a TraceError, if the content is impossible.
    """

    @property
    def notes(self) -> list[str]:
        """What JSON of torch.profiler lacks, a line each. Other captures have none; `check` says what they lack."""
        return [note for note in self.metadata.get(NOTES_KEY, "").split("\n") if note]

    @property
    def paths(self) -> list[tuple[str, ...]]:
        """The paths by path_id: names of ranges, outermost first; () for no range."""
        return self.range_paths.tuples

    def activities(self) -> pd.DataFrame:
        """One row per kernel, memcpy, memset and replay of a whole CUDA graph.

        Columns: kind, name, class (categorical); start_ns, end_ns, duration_ns (on the GPU); process, thread (global
        ids, the thread is the launching one, -1 without a launch); device, stream; launch_ns (start of the API call, NA
        without one); path_id (index into `paths`).
        """
        return self._if_possible(_tables().activities(self))

    def range_instances(self) -> pd.DataFrame:
        """One row per range instance, in order of opening.

        Columns: instance (its number), name, domain (categorical), process, thread (global ids), start_ns, end_ns (of
        the NVTX range; the capture's end where it was never closed), path_id (of its full path, its own name last).
        """
        return self._if_possible(_tables().range_instances(self))

    def ranges(self, under: str | None = None, process: int | None = None) -> pd.DataFrame:
        """One row per range name: range, instances, kernels, gpu_time_ns, memops, memop_time_ns.

        What nested ranges launched is included, once. With `under`, only ranges of this name and what is inside them
        count; with `process` (a global id), only those of this process. The same holds for the tables below.
        """
        return self._if_possible(_tables().ranges(self, under, process))

    def range_tree(self, under: str | None = None, process: int | None = None) -> pd.DataFrame:
        """One row per range path, inner ranges below outer ones: range (the path), depth, the columns of `ranges`."""
        return self._if_possible(_tables().range_tree(self, under, process))

    def kernels(self, under: str | None = None, process: int | None = None) -> pd.DataFrame:
        """One row per range path and activity name.

        Columns: range (the path, as attribution/path_text.py writes it), kernel, class, launches, total_ns, mean_ns,
        min_ns, max_ns, std_ns (the sample standard deviation, NaN for one launch).
        """
        return self._if_possible(_tables().kernels(self, under, process))

    def classes(self, under: str | None = None, process: int | None = None) -> pd.DataFrame:
        """One row per class: class, kernels, launches, total_ns, share_of_gpu_time, largest_kernel, unknown_names."""
        return self._if_possible(_tables().classes(self, under, process))

    def check(
        self, expected_steps: int | None = None, step_name: str = "step", *, equal_steps: bool = False
    ) -> list[Finding]:
        """The errors and warnings of a consistency check. For the arguments, see findings in views/completeness.py."""
        from kernel_tables.views.completeness import findings

        return findings(self, expected_steps, step_name, equal_steps=equal_steps)

    def _if_possible(self, table: pd.DataFrame) -> pd.DataFrame:
        """The table. Raises ImpossibleCapture if the capture is impossible."""
        self.require_possible()
        return table


def _tables():
    """The module of tables; imported late, so that pandas can be imported while a capture is read."""
    from kernel_tables.views import tables

    return tables
