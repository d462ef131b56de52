"""The tables on limits of communication: one feed-forward layer by layout (limits.py), and the cost of buckets.

What DistributedDataParallel's buckets cost is predicted for each size from the runs with other sizes, and measured.
"""

import pandas as pd

from cs336_model.arithmetic.memory import NUMBER_BYTES
from cs336_model.arithmetic.rings import Links, all_reduce_seconds, buckets_of, exposed_s, fitted_links, slowdown
from cs336_model.program.variants.values import BUCKET_MB
from cs336_model.ranges import BACKWARD
from profile_grid.questions.communication_limits.limits import LAYER_LIMITS
from profile_grid.study.dimensions import BATCH_SIZE, CONTEXT_LENGTH, GPUS, LEADING, MODEL, PARALLEL, keys_without
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables import communication_cost, ideal
from profile_grid.tables.names import WHOLE_STEP, WITHOUT_COMMUNICATION
from profile_grid.tables.per_pass import Merged, as_floats

# runs that agree in the first share a fitted slowdown; runs that agree in the second do the same work
SLOWDOWN_KEYS = keys_without(MODEL.key, CONTEXT_LENGTH.key, BATCH_SIZE.key, PARALLEL.key)
WORK_KEYS = keys_without(PARALLEL.key)
MAX_DEVIATIONS = 2  # standard deviations between processes: a larger error is unexpected


def bucket_costs(merged: Merged) -> pd.DataFrame:
    """One row per run with buckets: what communication costs its step, as predicted and as measured. A run has no row
    without two sizes of all-reduce alone on as many GPUs, or without a time without communication."""
    runs = _runs_with_buckets(merged)
    predictions = [_prediction(run, runs) for _, run in runs.iterrows()]
    names = ["slowdown", "predicted_ms", "other_sizes_ms"]
    table = runs.join(pd.DataFrame(predictions, runs.index, names, dtype="float64"))
    table["error_ms"] = table["predicted_ms"] - table["measured_ms"]
    within = table["error_ms"].abs() <= MAX_DEVIATIONS * table["spread_ms"]
    table["within_spread"] = within.astype("boolean").where(table["error_ms"].notna() & table["spread_ms"].notna())
    return BUCKET_COSTS.typed(table[BUCKET_COSTS.all_names].reset_index(drop=True))


def _runs_with_buckets(merged: Merged) -> pd.DataFrame:
    """The rows of bucket_costs, with LEADING and COLUMNS_OF_RUN: the columns that need no fit to other runs."""
    times, links_by_gpus = communication_cost.communication_times(merged), fitted_links_by_gpus(merged)
    shapes = {run["run"]: ideal.shape_of_run(run) for run in merged["runs"].to_dict("records")}
    other_phases_ms, transfers_ms = _other_phases_ms(merged), _transfers_ms(merged)
    rows = []
    for row in times.to_dict("records"):
        links, shape = links_by_gpus.get(row[GPUS.key]), shapes[row["run"]]
        backward_ms = row["baseline_ms"] - other_phases_ms.get(row["run"], float("nan"))
        is_known = links is not None and shape is not None and backward_ms > 0  # not if it is NaN
        if row[PARALLEL.key] not in BUCKET_MB or not is_known:
            continue
        megabytes = BUCKET_MB[row[PARALLEL.key]]
        buckets = buckets_of(shape, megabytes, NUMBER_BYTES[row["precision"]].number)
        seconds_by_bucket = all_reduce_seconds(buckets, row[GPUS.key], links)
        exposed_ms = 1e3 * exposed_s(buckets, seconds_by_bucket, backward_ms / 1e3)
        rows.append(
            {name: row[name] for name in LEADING}
            | {
                "bucket_mb": megabytes, "buckets": len(buckets), "latency_us": 1e6 * links.latency_s,
                "bandwidth_gb_per_s": links.bytes_per_s / 1e9, "backward_ms": backward_ms,
                "communication_ms": 1e3 * sum(seconds_by_bucket), "transfer_ms": transfers_ms.get(row["run"]),
                "exposed_ms": exposed_ms, "measured_ms": row["cost_ms"],
                # of a difference: the time of one process − the mean of the processes without communication
                "spread_ms": row["baseline_ms"] * row["baseline_spread"] * (1 + 1 / row["baseline_processes"]) ** 0.5,
            }
        )  # fmt: skip
    return pd.DataFrame(rows, columns=[*LEADING, *(column.name for column in columns(COLUMNS_OF_RUN))])


def _prediction(run: pd.Series, runs: pd.DataFrame) -> dict[str, float]:
    """From the runs with other sizes of buckets: the slowdown, the predicted cost, and the mean cost of the same work
    (NaN if no other run does it). Empty if these runs hide no communication."""
    others = runs[(runs["bucket_mb"] != run["bucket_mb"]) & runs["measured_ms"].notna()]
    others = others[(others[SLOWDOWN_KEYS] == run[SLOWDOWN_KEYS]).all(axis=1)]
    hidden_ms = others["communication_ms"] - others["exposed_ms"]
    factor = slowdown(zip(others["measured_ms"], others["exposed_ms"], hidden_ms, strict=True))  # equal in ms and in s
    if factor is None:
        return {}
    same_work = others[(others[WORK_KEYS] == run[WORK_KEYS]).all(axis=1)]
    predicted_ms = run["exposed_ms"] + factor * (run["communication_ms"] - run["exposed_ms"])
    return {"slowdown": factor, "predicted_ms": predicted_ms, "other_sizes_ms": same_work["measured_ms"].mean()}


def fitted_links_by_gpus(merged: Merged) -> dict[int, Links]:
    """By number of GPUs, latency and bandwidth of all-reduce alone, fitted to its sizes if there are two or more."""
    table = merged["all_reduce"]
    return {
        int(count): fitted_links(int(count), as_floats(rows["bytes"]), as_floats(rows["mean_ms"]) / 1e3)
        for count, rows in table.groupby(GPUS.key)
        if rows["bytes"].nunique() > 1
    }


def _other_phases_ms(merged: Merged) -> dict[str, float]:
    """By run, the time without a profiler of all phases but the backward pass, mean over ranks."""
    times = merged["rank_times"]
    others = times[~times["phase"].isin((WHOLE_STEP, WITHOUT_COMMUNICATION, BACKWARD))]
    by_rank = as_floats(others["mean_ms"]).groupby([others["run"], others["rank"]]).sum()
    return by_rank.groupby(level=0).mean().to_dict()


def _transfers_ms(merged: Merged) -> dict[str, float]:
    """By run, the time in which the collectives of a captured step transfer data, mean over ranks and steps."""
    steps = merged["rank_steps"]
    return (as_floats(steps["transfer_ns"]).groupby(steps["run"]).mean() / 1e6).to_dict()


COLUMNS_OF_RUN = """
    bucket_mb | int | 2^20 B | limit of a bucket
    buckets | int | | by the shapes: gradients fill a bucket, the last parameter first, until it holds its limit
    latency_us | float | µs | of one all-reduce, fitted to all-reduce alone on as many GPUs
    bandwidth_gb_per_s | float | 10^9 B/s | bus bandwidth of the same fit
    backward_ms | float | ms | of a backward pass without communication: that of a step less its other phases
    communication_ms | float | ms | of all buckets by the model: latency + bytes × 2(n − 1)/n ÷ bandwidth each
    transfer_ms | float | ms | the same, measured under the profiler
    exposed_ms | float | ms | by the model, from the end of the backward pass to the end of the last bucket
    measured_ms | float | ms | as cost_ms in communication_times: what communication costs a step without a profiler
    spread_ms | float | ms | standard deviation of measured_ms, from processes without communication
"""
BUCKET_COSTS = TableSpec(
    "bucket_costs",
    "One row per run by DistributedDataParallel: what its buckets cost by a model fitted to the runs with other sizes"
    " of buckets, and measured",
    columns(
        COLUMNS_OF_RUN,
        f"""
    slowdown | float | | seconds by which a second of hidden communication prolongs computation: fitted to the runs \
        with other sizes, on as many GPUs
    predicted_ms | float | ms | exposed + slowdown × (communication − exposed)
    error_ms | float | ms | predicted − measured
    other_sizes_ms | float | ms | mean of measured_ms over the other sizes of the same work: a prediction without a \
        model
    within_spread | bool | | whether the error is at most {MAX_DEVIATIONS} × spread_ms
""",
    ),
    make=bucket_costs,
)


TABLES = (LAYER_LIMITS, BUCKET_COSTS)
PAGE_TABLES = (
    PageTable("layer_limits", "One feed-forward layer on several GPUs"),
    PageTable("bucket_costs", "Cost of buckets: predicted from other sizes, and measured"),
)
