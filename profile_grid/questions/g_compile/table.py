"""The tables of (g): times and kernels compared with the uncompiled run, and the cost of compilation."""

import pandas as pd

from profile_grid.questions.g_compile.parts import COMPILE_PARTS
from profile_grid.study.dimensions import COMPILE, LEADING
from profile_grid.study.stages import TIMING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.classes import family
from profile_grid.tables.ideal import IDEAL, with_ideal
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged, per_pass
from profile_grid.tables.ratios import TIMES_WITH_BASE, both_sides, times_with_base

FIGURES = ("gpu_time_ms", "invocations")


def compile_times(merged: Merged) -> pd.DataFrame:
    """(g) One row per compiled run and phase: its time without a profiler, and that of the uncompiled run."""
    return with_ideal(times_with_base(merged, COMPILE), merged["runs"])


def compile_kernels(merged: Merged) -> pd.DataFrame:
    """(g) One row per compiled run, phase and family of classes of either run: GPU time and launches of both, 0 if one
    has none."""
    kernels = merged.kernels
    kernels = kernels.assign(**{"class": kernels["class"].astype("object").map(family)})
    times = per_pass(kernels, ["phase", "class"], merged.captured_steps)[["run", "phase", "class", *FIGURES]]
    return both_sides(merged, COMPILE, times, ["phase", "class"])


def compile_cost(merged: Merged) -> pd.DataFrame:
    """(g) One row per compiled run with an uncompiled one: seconds of the step that compiled, gain of each later step,
    and the number of steps that repay the cost; NaN without a gain."""
    times = times_with_base(merged, COMPILE)
    steps = times[times["phase"] == WHOLE_STEP]
    cost, runs = merged["cost"], merged["runs"].set_index("run")
    seconds = cost[cost["stage"] == TIMING.name].set_index("run")["compile_s"]
    gained = steps["base_mean_ms"] - steps["mean_ms"]
    compile_s = steps["run"].map(seconds).astype("float64")
    graphs = {name: steps["run"].map(runs[name]).astype("Int64") for name in ("graphs", "graph_breaks")}
    table = steps[LEADING].assign(
        compile_s=compile_s, gained_ms=gained, steps_to_pay=1e3 * compile_s / gained.where(gained > 0), **graphs
    )
    return table.reset_index(drop=True)


TABLES = (
    TableSpec(
        "compile_times",
        "(g) One row per compiled run and phase, from the processes without a profiler",
        columns(TIMES_WITH_BASE, IDEAL),
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
    steps_to_pay | float | | compile_s ÷ gained_ms: steps after which compiling has paid; empty where it never does
    graphs | int | | graphs that were compiled
    graph_breaks | int | | breaks between them
"""),
        make=compile_cost,
    ),
)
PAGE_TABLES = (
    PageTable("compile_times", "Time beside that of the run not compiled"),
    PageTable("compile_kernels", "Kernels beside those of the run not compiled"),
    PageTable("compile_parts", "Sets of parts beside the parts of the run not compiled"),
    PageTable("compile_cost", "What compiling costs"),
)
