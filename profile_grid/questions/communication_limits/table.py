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

SAME_SLOWDOWN = keys_without(MODEL.key, CONTEXT_LENGTH.key, BATCH_SIZE.key, PARALLEL.key)
SAME_WORK = keys_without(PARALLEL.key)
SPREADS = 2  # standard deviations between processes: the largest expected error


def bucket_costs(merged: Merged) -> pd.DataFrame:
    """One row per run with buckets: what communication costs its step by the model, and measured; no row without two
    sizes of all-reduce alone on as many GPUs, or a time without communication."""
    rows = _runs_with_buckets(merged)
    predicted = [_predicted(row, rows) for _, row in rows.iterrows()]
    names = ["slowdown", "predicted_ms", "other_sizes_ms"]
    table = rows.join(pd.DataFrame(predicted, index=rows.index, columns=names).astype("float64"))
    table["error_ms"] = table["predicted_ms"] - table["measured_ms"]
    within = table["error_ms"].abs() <= SPREADS * table["spread_ms"]
    table["within_spread"] = within.astype("boolean").where(table["error_ms"].notna() & table["spread_ms"].notna())
    return BUCKET_COSTS.typed(table[BUCKET_COSTS.all_names].reset_index(drop=True))


def _runs_with_buckets(merged: Merged) -> pd.DataFrame:
    """The rows of bucket_costs with KNOWN_COLUMNS: without the slowdown and what follows from it."""
    times, links = communication_cost.communication_times(merged), links_by_gpus(merged)
    shapes = {run["run"]: ideal.shape_of_run(run) for run in merged["runs"].to_dict("records")}
    other_phases_ms, transfers_ms = _other_phases_ms(merged), _transfers_ms(merged)
    rows = []
    for row in times.to_dict("records"):
        fitted, shape = links.get(row[GPUS.key]), shapes[row["run"]]
        backward_ms = row["baseline_ms"] - other_phases_ms.get(row["run"], float("nan"))
        if row[PARALLEL.key] not in BUCKET_MB or fitted is None or shape is None or not backward_ms > 0:
            continue
        megabytes = BUCKET_MB[row[PARALLEL.key]]
        buckets = buckets_of(shape, megabytes, NUMBER_BYTES[row["precision"]].number)
        seconds = all_reduce_seconds(buckets, row[GPUS.key], fitted)
        rows.append(
            {name: row[name] for name in LEADING}
            | {
                "bucket_mb": megabytes, "buckets": len(buckets), "latency_us": 1e6 * fitted.latency_s,
                "bandwidth_gb_per_s": fitted.bytes_per_s / 1e9, "backward_ms": backward_ms,
                "communication_ms": 1e3 * sum(seconds), "transfer_ms": transfers_ms.get(row["run"]),
                "exposed_ms": 1e3 * exposed_s(buckets, seconds, backward_ms / 1e3), "measured_ms": row["cost_ms"],
                # of the time of one process minus the mean of those without communication
                "spread_ms": row["baseline_ms"] * row["baseline_spread"] * (1 + 1 / row["baseline_processes"]) ** 0.5,
            }
        )  # fmt: skip
    return pd.DataFrame(rows, columns=[*LEADING, *KNOWN_NAMES])


def _predicted(row: pd.Series, rows: pd.DataFrame) -> tuple[float | None, float | None, float | None]:
    """(slowdown, predicted cost, mean cost of the same work) from the runs with other sizes of buckets. All are None if
    those hide no communication, the last also if none does the same work."""
    unseen = rows[(rows["bucket_mb"] != row["bucket_mb"]) & rows["measured_ms"].notna()]
    alike = unseen[(unseen[SAME_SLOWDOWN] == row[SAME_SLOWDOWN]).all(axis=1)]
    hidden_ms = alike["communication_ms"] - alike["exposed_ms"]
    factor = slowdown(zip(alike["measured_ms"], alike["exposed_ms"], hidden_ms, strict=True))
    same_work = alike[(alike[SAME_WORK] == row[SAME_WORK]).all(axis=1)]["measured_ms"]
    if factor is None:
        return None, None, None
    predicted = row["exposed_ms"] + factor * (row["communication_ms"] - row["exposed_ms"])
    return factor, predicted, same_work.mean() if len(same_work) else None


def links_by_gpus(merged: Merged) -> dict[int, Links]:
    """Latency and bandwidth of all-reduce alone, fitted to its sizes, by number of GPUs with two sizes or more."""
    table = merged["all_reduce"]
    return {
        int(count): fitted_links(int(count), as_floats(rows["bytes"]), as_floats(rows["mean_ms"]) / 1e3)
        for count, rows in table.groupby(GPUS.key)
        if rows["bytes"].nunique() > 1
    }


def _other_phases_ms(merged: Merged) -> dict[str, float]:
    """The time, without a profiler, of all phases but the backward pass, mean over ranks, by run."""
    times = merged["rank_times"]
    others = times[~times["phase"].isin((WHOLE_STEP, WITHOUT_COMMUNICATION, BACKWARD))]
    by_rank = as_floats(others["mean_ms"]).groupby([others["run"], others["rank"]]).sum()
    return by_rank.groupby(level=0).mean().to_dict()


def _transfers_ms(merged: Merged) -> dict[str, float]:
    """The transfers of all collectives of a captured step, mean over ranks and steps, by run."""
    steps = merged["rank_steps"]
    return (as_floats(steps["transfer_ns"]).groupby(steps["run"]).mean() / 1e6).to_dict()


KNOWN_COLUMNS = """
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
KNOWN_NAMES = [column.name for column in columns(KNOWN_COLUMNS)]
BUCKET_COSTS = TableSpec(
    "bucket_costs",
    "One row per run by DistributedDataParallel: what its buckets cost by a model fitted to the runs with other sizes"
    " of buckets, and measured",
    columns(
        KNOWN_COLUMNS,
        f"""
    slowdown | float | | seconds by which a second of hidden communication prolongs computation: fitted to the runs \
        with other sizes, on as many GPUs
    predicted_ms | float | ms | exposed + slowdown × (communication − exposed)
    error_ms | float | ms | predicted − measured
    other_sizes_ms | float | ms | mean of measured_ms over the other sizes of the same work: a prediction without a \
        model
    within_spread | bool | | whether the error is at most {SPREADS} × spread_ms
""",
    ),
    make=bucket_costs,
)


TABLES = (LAYER_LIMITS, BUCKET_COSTS)
PAGE_TABLES = (
    PageTable("layer_limits", "One feed-forward layer on several GPUs"),
    PageTable("bucket_costs", "Cost of buckets: predicted from other sizes, and measured"),
)
