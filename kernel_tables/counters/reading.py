"""The table that Nsight Compute prints (--csv --page raw), and the columns of it that are kept.

It also names the host, the program and its process, which are not read. One row per counted launch is kept, with the
requested metrics.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from kernel_tables.counters import metrics
from kernel_tables.errors import TraceError

CONFIGURATION = ["kernel", "grid", "block"]
HEADINGS = {"kernel": "Kernel Name", "grid": "Grid Size", "block": "Block Size"}
MISSING_VALUES = ("", "n/a", "nan", "-nan", "inf")


def read_counters(path: Path) -> pd.DataFrame:
    """One row per counted launch: kernel, grid and block ("16x6x8"), and every metric of METRICS and of
    OPERATION_INDICATORS, NaN if it was not requested or the GPU has none. Raises TraceError if the file is not a table
    of Nsight Compute, is cut short, or has other units.
    """
    with path.open(encoding="utf-8", errors="replace", newline="") as file:
        rows = list(csv.reader(line for line in file if line.startswith('"')))  # its messages begin with ==
    if len(rows) < 2 or not set(HEADINGS.values()) <= set(rows[0]):
        raise TraceError(f"{path}: no table of Nsight Compute; make it with --csv --page raw --print-units base")
    heading, units, launches = rows[0], rows[1], rows[2:]
    if wrong := [row for row in launches if len(row) != len(heading)]:
        raise TraceError(f"{path}: a row has {len(wrong[0])} of {len(heading)} columns: it is cut short; count again")
    column_index = {name: index for index, name in enumerate(heading)}
    table = {name: [row[column_index[text]] for row in launches] for name, text in HEADINGS.items()}
    table |= {name: [size(text) for text in table[name]] for name in ("grid", "block")}
    for metric in (*metrics.METRICS, *metrics.OPERATION_INDICATORS):
        table[metric.name] = _metric_values(path, metric, column_index.get(metric.name), units, launches)
    return pd.DataFrame(table)


def read_kept_counters(path: Path) -> pd.DataFrame:
    """A table of `join_rounds` that was written as plain CSV. Raises TraceError for another file."""
    wanted = no_counters()
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys(CONFIGURATION, "str"), keep_default_na=False, na_values=[""])
    except (ValueError, UnicodeDecodeError) as error:  # pandas' errors of parsing are ValueErrors
        raise TraceError(f"{path}: it is damaged ({str(error).splitlines()[0]}); count again") from error
    if list(table.columns) != list(wanted.columns):
        raise TraceError(f"{path}: its columns are not those of counters; count again")
    try:
        return table.astype(wanted.dtypes.to_dict())
    except ValueError as error:
        raise TraceError(f"{path}: it is damaged ({error}); count again") from error


def join_rounds(rounds: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The launches of several rounds in one table, in order, with the metrics of METRICS. A round is one run of Nsight
    Compute, which counts some of the metrics for some of the kernels.

    A launch whose stalls were not requested gets those of the first launch of its configuration (kernel, grid and
    block). If its operations on tensor cores were not requested, there are three cases: if another round counted those
    of its configuration, the launch is left out; so it is if its kernel executed instructions that multiply matrices
    there; otherwise, or on a GPU that does not count these instructions, the operations are 0. A launch that executed
    such instructions without a counted operation, as in fp8, is left out, too.
    """
    table = pd.concat(rounds, ignore_index=True)
    stalls, operations = list(metrics.STALLS.values()), list(metrics.TENSOR_OPERATIONS.values())
    first_stalls = table.groupby(CONFIGURATION, sort=False)[stalls].transform("first")
    table = table.assign(**table[stalls].fillna(first_stalls))
    configuration = [table[name] for name in CONFIGURATION]
    is_counted = table[operations].notna().any(axis=1)
    is_counted_elsewhere = is_counted.groupby(configuration).transform("any")
    executed = table[metrics.TENSOR_INSTRUCTIONS] - table[metrics.NON_MATRIX_INSTRUCTIONS].fillna(0.0)
    multiplies = executed.groupby(configuration).transform("max").gt(0)  # only one round requests these instructions
    has_uncounted_kinds = is_counted & multiplies & table[operations].sum(axis=1).eq(0)
    is_left_out = has_uncounted_kinds | (~is_counted & (is_counted_elsewhere | multiplies))
    known_operations = [name for name in operations if table[name].notna().any()]  # not NaN: this GPU counts them
    table = table.assign(**table[known_operations].mask(~is_counted, 0.0))
    return table.loc[~is_left_out, no_counters().columns].reset_index(drop=True)


def size(text: str) -> str:
    """ "16x6x8" of "(16, 6, 8)", as Nsight Compute writes the size of a grid or block."""
    return "x".join(part.strip() for part in text.strip("() ").split(","))


def no_counters() -> pd.DataFrame:
    """The table of `join_rounds` without rows."""
    return pd.DataFrame({name: pd.Series(dtype="str") for name in CONFIGURATION}).assign(
        **{metric.name: pd.Series(dtype="float64") for metric in metrics.METRICS}
    )


def _metric_values(
    path: Path, metric: metrics.Metric, index: int | None, units: Sequence[str], launches: Sequence[Sequence[str]]
) -> np.ndarray:
    """The value of each launch, all NaN if the table has no column for the metric, that is, no `index`."""
    if index is None:
        return np.full(len(launches), np.nan)
    values = np.array([_number(row[index], metric.name, path) for row in launches], dtype="float64")
    if units[index] not in metric.units and not np.isnan(values).all():
        expected = " or ".join(repr(unit) for unit in metric.units)
        raise TraceError(
            f"{path}: {metric.name} is in {units[index]!r}, and {expected} is read; use --print-units base"
        )
    return values


def _number(text: str, name: str, path: Path) -> float:
    text = text.replace(",", "").strip()
    try:
        return np.nan if text.lower() in MISSING_VALUES else float(text)
    except ValueError:
        raise TraceError(f"{path}: {name} is {text!r}, which is no number; is the file complete?") from None
