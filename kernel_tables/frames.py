"""Captures as frames of pandas: `kernel_tables.read("trace.json.gz")`."""

import os
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import pandas as pd

from kernel_tables.attribution.path_text import as_path
from kernel_tables.columns import column_names
from kernel_tables.ranks.ranks import RankTrace, ranks_of
from kernel_tables.trace import Trace


class Frames(NamedTuple):
    """The tables of captures, with the columns of kernel_tables.columns.TABLES; the column `rank` only if there are
    several captures. Times are nanoseconds: integers, except means and deviations."""

    activities: pd.DataFrame
    ranges: pd.DataFrame  # the tree: `range` is the path, `depth` 0 for the outermost
    kernels: pd.DataFrame
    classes: pd.DataFrame
    notes: list[str]  # what JSON of torch.profiler lacks, a line each


def read(*paths: str | os.PathLike, under: str | None = None, up_to_damage: bool = False) -> Frames:
    """The tables of one capture, or of the captures of the ranks of a run, by rank. Raises TraceError.

    A capture is JSON of torch.profiler, an nsys SQLite export, an .nsys-rep, or one of them gzipped. With `under`, only
    what is inside ranges of this name counts. With `up_to_damage`, invalid JSON is read as far as it is valid.
    """
    if not paths:
        raise TypeError("read() needs the path of a capture")
    with ExitStack() as stack:
        traces = [stack.enter_context(Trace(path, up_to_damage=up_to_damage)) for path in paths]
        ranks = ranks_of(traces) if len(traces) > 1 else []
        parts = [_tables(rank.trace, under, rank) for rank in ranks] or [_tables(traces[0], under, None)]
        joined = (pd.concat(tables, ignore_index=True) for tables in zip(*parts, strict=True))
        return Frames(*joined, [note for trace in traces for note in trace.notes])


def _tables(trace: Trace, under: str | None, rank: RankTrace | None) -> tuple[pd.DataFrame, ...]:
    """The first four fields of Frames for a trace, or for what one `rank` launched."""
    process = None if rank is None else rank.process
    methods = (trace.range_tree, trace.kernels, trace.classes)
    tables = (_activities(trace, under, process), *(method(under, process) for method in methods))
    if rank is None:
        return tables
    return tuple(table.assign(rank=rank.number)[["rank", *table.columns]] for table in tables)


def _activities(trace: Trace, under: str | None, process: int | None) -> pd.DataFrame:
    table = trace.activities()
    path = table["path_id"].to_numpy()
    is_selected = np.ones(len(table), bool) if process is None else table["process"].to_numpy() == process
    if under is not None:
        trace.require_range(under)
        is_selected &= trace.range_paths.is_inside(under)[path]
    table["range"] = np.array([as_path(names) for names in trace.paths], object)[path]
    return table.loc[is_selected, column_names("activities")].reset_index(drop=True)
