"""The table of operators that are measured alone: one row per cell, from the results of the runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import pandas as pd

from profile_grid.results import load_runs, results
from profile_grid.stages.operator.stage import OPERATOR
from profile_grid.study import dimensions, table_spec, workloads
from profile_grid.typed_json import parse_as

OF_A_RUN = tuple(dimension for dimension in workloads.ATTENTION_ALONE.dimensions if dimension != dimensions.HEAD_DIM)
DIMENSIONS = (dimensions.HEAD_DIM, dimensions.CONTEXT_LENGTH, *OF_A_RUN)
KEYS = tuple(dimension.key for dimension in DIMENSIONS)
BENCH_PASSES = {"forward": "a forward pass", "backward": "a backward pass", "both": "a forward and a backward pass"}
LEADING_COLUMNS = (table_spec.RUN, *map(table_spec.column_of, DIMENSIONS))


@dataclass(frozen=True)
class OperatorCell:
    """The measurement of one context length of a run. If it could not be timed, the lists of seconds are []."""

    context_length: int
    status: str
    reason: str | None
    out_of_memory: results.OutOfMemory | None
    forward_seconds: list[float]
    backward_seconds: list[float]
    compile_seconds: float | None
    memory_before_backward_bytes: int | None
    peak_bytes: int | None
    output_error: float | None
    gradient_error: float | None
    bench_method: str | None
    bench_seconds: dict[str, list[float]]  # by key of BENCH_PASSES


@dataclass(frozen=True)
class OperatorFacts:
    """The entry `facts` of operator.json."""

    cells: list[OperatorCell]


def study_tables(runs: list[load_runs.MeasuredRun]) -> dict[str, pd.DataFrame]:
    """`operator_times`: the cells of the runs in which the stage is complete."""
    rows = [
        _row(run, cell)
        for run in runs
        if run.is_complete(OPERATOR.name)
        for cell in parse_as(OperatorFacts, run.results[OPERATOR.name].facts, "facts").cells
    ]
    return {"operator_times": OPERATOR_TIMES.table(rows)}


def _row(run: load_runs.MeasuredRun, cell: OperatorCell) -> dict:
    """The row of a cell in `operator_times`."""
    values = run.entry | {dimensions.CONTEXT_LENGTH.key: cell.context_length}  # a run has several context lengths
    forward, backward = cell.forward_seconds, cell.backward_seconds
    row = {
        "run": run.name,
        **{key: values[key] for key in KEYS},
        "status": cell.status, "reason": cell.reason, "passes": len(forward),
        "forward_ms": _mean_ms(forward), "forward_std_ms": _std_ms(forward),
        "backward_ms": _mean_ms(backward), "backward_std_ms": _std_ms(backward),
        "memory_before_backward_bytes": cell.memory_before_backward_bytes,
        "peak_bytes": cell.peak_bytes,
        "compile_s": cell.compile_seconds,
        "output_error": cell.output_error, "gradient_error": cell.gradient_error,
        "bench_method": cell.bench_method,
    }  # fmt: skip
    for passes in BENCH_PASSES:
        seconds = cell.bench_seconds.get(passes, [])
        row[f"bench_{passes}_calls"] = len(seconds) or None
        row[f"bench_{passes}_ms"], row[f"bench_{passes}_std_ms"] = _mean_ms(seconds), _std_ms(seconds)
    return row


def _mean_ms(seconds: Sequence[float]) -> float | None:
    return 1e3 * fmean(seconds) if seconds else None


def _std_ms(seconds: Sequence[float]) -> float | None:
    return 1e3 * stdev(seconds) if len(seconds) > 1 else None


OPERATOR_TIMES = table_spec.TableSpec(
    "operator_times",
    "One row per cell: an attention operator at a head size and context length",
    table_spec.columns(
        """
    status | text | | complete, out_of_memory, unsupported (PyTorch refuses it here), or failed (it raised an \
        exception, or a number is missing or not finite)
    reason | text | | why there are no times
    passes | int | | measured passes
    forward_ms | float | ms | mean time of a forward pass, including the wait for the device
    forward_std_ms | float | ms | its standard deviation (n − 1)
    backward_ms | float | ms | mean time of a backward pass, including the wait for the device
    backward_std_ms | float | ms | its standard deviation (n − 1)
    memory_before_backward_bytes | float | B | bytes in use between forward and backward pass; empty on a CPU
    peak_bytes | float | B | peak bytes in use; empty on a CPU
    compile_s | float | s | the pass that compiled it, with an empty cache
    output_error | float | | largest error of a row of the output: norm of its difference from attention in fp64 ÷ \
        root of the sum of the squares of the terms of which the row is the sum
    gradient_error | float | | the same of the gradients of queries, keys and values, the largest of the three
    bench_method | text | | how single calls were timed, as triton.testing.do_bench does; empty if they were not
""",
        *(
            f"""
    bench_{passes}_calls | int | | measured calls of {words}
    bench_{passes}_ms | float | ms | mean time of {words}, by CUDA events
    bench_{passes}_std_ms | float | ms | its standard deviation (n − 1)
"""
            for passes, words in BENCH_PASSES.items()
        ),
    ),
    leading=LEADING_COLUMNS,
)
TABLES = (OPERATOR_TIMES,)
