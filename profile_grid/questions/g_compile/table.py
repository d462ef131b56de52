"""The tables of (g): times and kernels of compiled runs, compared with those of the same runs not compiled (the
baselines), and the cost of compilation.

The range of a compiled kernel names all parts that it serves: `norm + qkv projection`. A kernel of the baseline serves
one part. So times add up to the step on both sides, and no kernel is divided.
"""

import re

import pandas as pd

from profile_grid.study import dimensions, stages
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables import classes, conservation, ideal, model_parts, names, ratios
from profile_grid.tables.per_pass import Merged, as_floats, per_pass, total_by_run

SET_KEYS = ["phase", "parts"]  # identify a set of parts within a run
# kernels that only complete a matrix multiply of another kernel, so that it is not counted twice
SECOND_PASS = re.compile(r"splitk_?reduce|reduce_1Block|epilogue::impl", re.IGNORECASE)


def compile_parts(merged: Merged) -> pd.DataFrame:
    """(g) One row per compiled run, phase and set of parts that a kernel of this run or of its baseline serves. GPU
    time, launches and matrix multiplies of both are 0 if there are none. Raises NotConserved if a kernel is lost."""
    kernels = _kernels_by_parts(merged)
    is_matmul = classes.is_matmul(kernels["class"]).astype("bool")
    is_second_pass = kernels["kernel"].map(lambda name: bool(SECOND_PASS.search(name))).astype("bool")

    def per_set(some_kernels: pd.DataFrame) -> pd.DataFrame:
        return per_pass(some_kernels, SET_KEYS, merged.captured_steps).set_index(["run", *SET_KEYS])

    matmuls = per_set(kernels[is_matmul & ~is_second_pass])["invocations"]
    times = per_set(kernels)[["gpu_time_ms", "invocations", "total_ns"]].assign(matmuls=matmuls)
    table = ratios.join_base(merged, dimensions.COMPILE, times.reset_index(), SET_KEYS)
    _check_conserved(table, kernels)
    share = table["gpu_time_ms"] / table.groupby(["run", "phase"])["gpu_time_ms"].transform("sum")
    base_others_ms = _sum_over_parts(table, per_set(kernels[~is_matmul])["gpu_time_ms"].to_dict())
    table = table.assign(share=share, base_others_ms=base_others_ms)
    return table.drop(columns=["total_ns", "base_total_ns"])


def _kernels_by_parts(merged: Merged) -> pd.DataFrame:
    """The kernels of compiled runs and their baselines, each with the set of parts that it serves."""
    pairs = ratios.base_pairs(merged["runs"], dimensions.COMPILE)
    kernels = merged.kernels[merged.kernels["run"].isin({*pairs["run"], *pairs["base_run"]})]
    ranges = model_parts.ranges_with_parts(kernels).rename(columns={"part": "parts"})
    return kernels.merge(ranges, on=model_parts.KEY_COLUMNS, how="left", validate="many_to_one")


def _sum_over_parts(table: pd.DataFrame, part_ms: dict[tuple, float]) -> pd.Series:
    """Per row of the table, the time of all parts of its set in the baseline, added up. `part_ms` has the time of each
    part by (run, phase, part)."""
    sums = [
        sum(part_ms.get((base_run, phase, part), 0.0) for part in model_parts.parts_in(parts))
        for base_run, phase, parts in table[["base_run", *SET_KEYS]].itertuples(index=False, name=None)
    ]
    return pd.Series(sums, index=table.index, dtype="float64")


def _check_conserved(table: pd.DataFrame, kernels: pd.DataFrame) -> None:
    """Raises NotConserved unless, to the nanosecond, times add up to those of the kernels, of compiled runs and of
    baselines."""
    ns_by_run, pairs = as_floats(total_by_run(kernels)), table.drop_duplicates("run")
    for run_column, ns_column in (("run", "total_ns"), ("base_run", "base_total_ns")):
        expected_ns = ns_by_run.reindex(pairs[run_column]).sum()
        conservation.require_same("GPU time by set of parts", table[ns_column].sum(), expected_ns)


COMPILE_PARTS = TableSpec(
    "compile_parts",
    "(g) One row per compiled run, phase and set of parts of the model, from the captures; times of a phase add up",
    columns("""
    base_run | text | | the run at the default that differs in nothing else
    phase | text | | range directly inside step
    parts | text | | parts that a kernel serves at once, joined by " + "; (no inner range): unknown
    gpu_time_ms | float | ms | GPU time of such kernels in a single step of the compiled run
    invocations | float | | their launches in a single step
    matmuls | float | | matrix multiplies among them
    base_gpu_time_ms | float | ms | GPU time of the part in a single step of the run not compiled; 0 for a set of \
        several
    base_invocations | float | | its launches in a single step
    base_matmuls | float | | matrix multiplies among them
    share | float | of 1 | of the GPU time of the compiled run's phase; empty if it has none
    base_others_ms | float | ms | all parts of the set in the run not compiled, without matrix multiplies; sets overlap
"""),
    make=compile_parts,
)


def compile_times(merged: Merged) -> pd.DataFrame:
    """(g) One row per compiled run and phase: its time without a profiler, and that of its baseline."""
    return ideal.with_ideal(ratios.times_with_base(merged, dimensions.COMPILE), merged["runs"])


def compile_kernels(merged: Merged) -> pd.DataFrame:
    """(g) One row per compiled run, phase and family of classes that this run or its baseline has. GPU time and
    launches of both are 0 if there are none. The column `class` holds the family."""
    kernels = merged.kernels
    kernels = kernels.assign(**{"class": kernels["class"].astype("object").map(classes.family)})
    keys = ["phase", "class"]
    times = per_pass(kernels, keys, merged.captured_steps)[["run", *keys, "gpu_time_ms", "invocations"]]
    return ratios.join_base(merged, dimensions.COMPILE, times, keys)


def compile_cost(merged: Merged) -> pd.DataFrame:
    """(g) One row per compiled run with a baseline: seconds of the step that compiled, ms that each later step gains,
    the number of steps that repay the cost (NaN without a gain), and the numbers of graphs and of graph breaks."""
    times = ratios.times_with_base(merged, dimensions.COMPILE)
    steps = times[times["phase"] == names.WHOLE_STEP]
    cost, runs = merged["cost"], merged["runs"].set_index("run")
    seconds_by_run = cost[cost["stage"] == stages.TIMING.name].set_index("run")["compile_s"]
    compile_s = steps["run"].map(seconds_by_run).astype("float64")
    gained_ms = steps["base_mean_ms"] - steps["mean_ms"]
    graphs = {name: steps["run"].map(runs[name]).astype("Int64") for name in ("graphs", "graph_breaks")}
    table = steps[dimensions.LEADING].assign(compile_s=compile_s, gained_ms=gained_ms)
    table = table.assign(steps_to_pay=1e3 * compile_s / gained_ms.where(gained_ms > 0), **graphs)
    return table.reset_index(drop=True)


TABLES = (
    TableSpec(
        "compile_times",
        "(g) One row per compiled run and phase, from the processes without a profiler",
        columns(ratios.TIMES_WITH_BASE, ideal.IDEAL_COLUMNS),
        make=compile_times,
    ),
    TableSpec(
        "compile_kernels",
        "(g) One row per compiled run, phase and family of kernel classes, from the captures",
        columns("""
    base_run | text | | the run at the default that differs in nothing else
    phase | text | | range directly inside step
    class | text | | family of kernel classes
    gpu_time_ms | float | ms | GPU time in a single step of the compiled run
    invocations | float | | launches in a single step of it
    base_gpu_time_ms | float | ms | GPU time in a single step of the run not compiled
    base_invocations | float | | launches in a single step of it
"""),
        make=compile_kernels,
    ),
    COMPILE_PARTS,
    TableSpec(
        "compile_cost",
        "(g) One row per compiled run, from the processes without a profiler",
        columns("""
    compile_s | float | s | the step in which it was compiled, with an empty cache
    gained_ms | float | ms | step of the run not compiled − step of this one
    steps_to_pay | float | | compile_s ÷ gained_ms: steps after which compiling is repaid; empty if it never is
    graphs | int | | graphs that were compiled
    graph_breaks | int | | breaks between them
"""),
        make=compile_cost,
    ),
)
PAGE_TABLES = (
    PageTable("compile_times", "Times, compared with the run that is not compiled"),
    PageTable("compile_kernels", "Kernels, compared with the run that is not compiled"),
    PageTable("compile_parts", "Sets of parts, compared with the run that is not compiled"),
    PageTable("compile_cost", "What compiling costs"),
)
