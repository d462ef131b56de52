"""The tables of (n): the cost of communication, the parts of a step on every GPU, each collective, scaling, and
(in `divided`) parameters that ranks divide among themselves."""

import pandas as pd

from profile_grid.questions.n_communication import divided, one_gpu
from profile_grid.questions.n_communication.cost import communication_times
from profile_grid.stages.timing.tables import ACCURACY
from profile_grid.study.dimensions import GPUS, LEADING, PARALLEL, keys_without
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.per_pass import Merged, as_floats, in_order_of, with_leading_columns

KEY_COLUMNS = ["run", "rank", "device"]
PARTS = ("compute", "exposed_communication", "exposed_memory", "idle")  # their times add up to that of a step
STEP_TIMES = ("step", *PARTS, "communication", "overlapped", "transfer", "waiting")  # names of columns without unit
COLLECTIVE_TIMES = ("duration", "exposed", "transfer", "waiting")


def communication_steps(merged: Merged) -> pd.DataFrame:
    """(n) One row per run on several GPUs, rank and device: means of STEP_TIMES over its captured steps."""
    steps = merged["rank_steps"]
    times_ms = {f"{name}_ms": as_floats(steps[f"{name}_ns"]) / 1e6 for name in STEP_TIMES}
    counts = {name: as_floats(steps[name]) for name in ("collectives", "bytes")}
    groups = steps[KEY_COLUMNS].assign(**times_ms, **counts).groupby(KEY_COLUMNS, sort=False)
    table = groups.mean().assign(steps=groups.size()).reset_index()
    table["overlap"] = table["overlapped_ms"] / table["communication_ms"].where(table["communication_ms"] > 0)
    return with_leading_columns(table, steps)


def communication_collectives(merged: Merged) -> pd.DataFrame:
    """(n) One row per run on several GPUs, operation, size and bucket: means over ranks and captured steps."""
    collectives = merged["collectives"]
    keys = ["run", "operation", "bytes", "bucket"]
    times_ms = {f"{name}_ms": as_floats(collectives[f"{name}_ns"]) / 1e6 for name in COLLECTIVE_TIMES}
    # depends on the operation and the number of ranks
    bus_factor = as_floats(collectives["bus_gb_per_s"]) / as_floats(collectives["algorithm_gb_per_s"])
    sizes = {name: as_floats(collectives[name]) for name in ("bytes", "bucket")}
    rows = collectives[["run", "operation"]].assign(**sizes, **times_ms, bus_factor=bus_factor)
    groups = rows.groupby(keys, sort=False, dropna=False)
    table = groups.mean().assign(per_step=groups.size()).reset_index()
    rank_steps = collectives[[*KEY_COLUMNS, "step"]].drop_duplicates().groupby("run").size()  # steps of all ranks
    table["per_step"] /= as_floats(table["run"].map(rank_steps))
    table["algorithm_gb_per_s"] = table["bytes"] / table["transfer_ms"].where(table["transfer_ms"] > 0) / 1e6
    table["bus_gb_per_s"] = table["algorithm_gb_per_s"] * table["bus_factor"]
    table = with_leading_columns(table.drop(columns="bus_factor"), collectives)
    return in_order_of(table, collectives["run"], "bucket")


def communication_accuracy(merged: Merged) -> pd.DataFrame:
    """(n) The rows of `accuracy` of runs on several GPUs: errors of the first step, with reduced gradients."""
    rows = merged["accuracy"]
    return rows[as_floats(rows[GPUS.key]) > 1].reset_index(drop=True)


def communication_timelines(merged: Merged) -> pd.DataFrame:
    """(n) One row per collective in the middle captured step of rank 0, of two runs: of all pairs that do the same
    work, the one whose overlap differs most. The run that overlaps less comes first."""
    steps = merged["rank_steps"]
    communicating = steps[(steps["rank"] == 0) & (as_floats(steps["communication_ns"]) > 0)]
    is_first_device = communicating["device"] == communicating.groupby("run")["device"].transform("min")
    steps = communicating[is_first_device]
    pair = _runs_with_different_overlap(steps)
    if not pair:
        return COMMUNICATION_TIMELINES.table([])
    by_run = steps[steps["run"].isin(pair)].sort_values("step").groupby("run")
    middle = pd.concat([run_steps.iloc[[len(run_steps) // 2]] for _, run_steps in by_run])
    keys = [*KEY_COLUMNS, "step"]
    rows = in_order_of(merged["collectives"].merge(middle[[*keys, "step_ns"]], on=keys), pair, "number")
    columns_ns = ("step_ns", "start_ns", "duration_ns", "exposed_ns")
    step_ms, start_ms, duration_ms, exposed_ms = (as_floats(rows[name]) / 1e6 for name in columns_ns)
    return rows[[*LEADING, "step", "number", "operation"]].assign(
        step_ms=step_ms, start_ms=start_ms, end_ms=start_ms + duration_ms, exposed_ms=exposed_ms
    )


def _runs_with_different_overlap(steps: pd.DataFrame) -> list[str]:
    """The names of two runs with the same work: the one that overlaps least and the one that overlaps most. Of all
    such pairs, the one that differs most; [] if no two differ."""
    same_work = keys_without(PARALLEL.key)
    times = steps.assign(**{name: as_floats(steps[name]) for name in ("communication_ns", "overlapped_ns")})
    sums = times.groupby(["run", *same_work], sort=False, dropna=False)[["communication_ns", "overlapped_ns"]].sum()
    runs = sums.assign(overlap=sums["overlapped_ns"] / sums["communication_ns"]).reset_index()
    pair, largest_difference = [], 0.0
    for _, candidates in runs.groupby(same_work, sort=False, dropna=False):
        least, most = (candidates.loc[index] for index in candidates["overlap"].agg(["idxmin", "idxmax"]))
        if most["overlap"] - least["overlap"] > largest_difference:
            pair, largest_difference = [least["run"], most["run"]], most["overlap"] - least["overlap"]
    return pair


COMMUNICATION_TIMELINES = TableSpec(
    "communication_timelines",
    "(n) One row per collective in one captured step of rank 0 of two runs, one that overlaps and one that does not",
    columns("""
    step | int | | number of the captured step
    number | int | | as in collectives
    operation | text | | all-reduce, ...
    step_ms | float | ms | length of the step
    start_ms | float | ms | start of the collective, since the step began
    end_ms | float | ms | its end
    exposed_ms | float | ms | the part of it in which no kernel computed
"""),
    make=communication_timelines,
)


RANK_AND_DEVICE = columns("""
    rank | int | | number of the process, from 0
    device | int | | number of its GPU, as its capture counts them; −1 for a processor
""")
TABLES = (
    TableSpec(
        "communication_times",
        "(n) One row per run on several GPUs, without a profiler: its step, and the same without communication",
        columns("""
    status | text | | how the timing of the run ended
    mean_ms | float | ms | mean time of a step, at every step that of the slowest rank
    std_ms | float | ms | its standard deviation (n − 1)
    without_mean_ms | float | ms | the same for a step whose gradients are not reduced
    without_std_ms | float | ms | its standard deviation
    baseline_ms | float | ms | median of without_mean_ms of all runs that do the same work
    baseline_spread | float | | relative standard deviation between these processes; empty for one
    baseline_processes | float | | these processes
    cost_ms | float | ms | mean_ms − baseline_ms
    cost_share | float | of 1 | of the step
    verdict | text | | slower (it costs time), or unclear by the spread between these processes, adjusted for the \
        number of rows
"""),
        make=communication_times,
    ),
    TableSpec(
        "communication_steps",
        "(n) One row per run on several GPUs, rank and device, under the profiler: means of the captured steps",
        columns(
            RANK_AND_DEVICE,
            """
    step_ms | float | ms | length of a step on this device: compute + exposed communication + exposed memory + idle
    compute_ms | float | ms | time in which at least one kernel ran that is not communication
    exposed_communication_ms | float | ms | while communication ran, and no such kernel
    exposed_memory_ms | float | ms | while copies or fills ran, and neither of these
    idle_ms | float | ms | while nothing ran
    communication_ms | float | ms | while at least one collective ran
    overlapped_ms | float | ms | the part of it in which a kernel computed
    transfer_ms | float | ms | of all collectives, each as long as on the rank on which it was shortest
    waiting_ms | float | ms | of all collectives, what they took longer on this rank: waiting for the slowest
    collectives | float | | in a step
    bytes | float | B | reduced in a step on this rank; empty if the size of a collective is unknown
    steps | int | | captured steps
    overlap | float | of 1 | overlapped ÷ communication
""",
        ),
        make=communication_steps,
    ),
    TableSpec(
        "communication_collectives",
        "(n) One row per run on several GPUs, operation, size and bucket: means over ranks and captured steps",
        columns("""
    operation | text | | all-reduce, ...
    bytes | float | B | of the tensor that is reduced, on one rank; empty if no range names it
    bucket | float | | number of the bucket of gradients, if they are reduced in buckets
    duration_ms | float | ms | of one collective, including waiting
    exposed_ms | float | ms | the part of it in which no kernel computed
    transfer_ms | float | ms | the shortest over the ranks
    waiting_ms | float | ms | duration less transfer
    per_step | float | | such collectives in a step of a rank
    algorithm_gb_per_s | float | 10^9 B/s | bytes ÷ transfer
    bus_gb_per_s | float | 10^9 B/s | that × 2(n − 1)/n for an all-reduce of n ranks
"""),
        make=communication_collectives,
    ),
    one_gpu.COMMUNICATION_LOSSES,
    TableSpec(
        "communication_accuracy",
        "(n) One row per timed run on several GPUs: its first step, with reduced gradients, compared with an eager fp64"
        " run of the entire batch",
        ACCURACY.as_in(),
        make=communication_accuracy,
    ),
    one_gpu.COMMUNICATION_SCALING,
    *divided.TABLES,
    COMMUNICATION_TIMELINES,
)
PAGE_TABLES = (
    PageTable("communication_times", "Steps with and without communication"),
    PageTable("communication_steps", "What fills a step on every GPU"),
    PageTable("communication_collectives", "Collectives, by operation, size and bucket"),
    PageTable("communication_losses", "Losses, compared with one GPU"),
    PageTable("communication_accuracy", "First steps against fp64"),
    PageTable("communication_scaling", "Strong and weak scaling"),
    *divided.PAGE_TABLES,
    PageTable("communication_timelines", "Communication on the time axis of a step"),
)
