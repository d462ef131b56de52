"""What the document on limits of communication says: sentences and tables."""

from collections.abc import Iterable

import pandas as pd

from cs336_model.arithmetic.layer_limits import DATA
from cs336_model.ranges import BACKWARD
from profile_grid.quantities import ABSENT, count, interval, known, percent, rate, significant, with_spread
from profile_grid.questions.communication_limits.limits import LAYER, ROOF
from profile_grid.questions.communication_limits.table import MAX_DEVIATIONS
from profile_grid.study.dimensions import BATCH_SIZE, CONTEXT_LENGTH, GPUS, MODEL, PARALLEL
from profile_grid.tables.cells import Part, rows_table
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import Claim, capital, of_all

RATE_SOURCES = {
    ROOF: "the FLOP/s of the fastest matrix multiply that Nsight Compute counted in this precision",
    LAYER: "the FLOP/s of the layer's matrix multiplies in the captured forward pass of the run",
}
KEYS_OF_LINES = (MODEL.key, CONTEXT_LENGTH.key, BATCH_SIZE.key, GPUS.key)
NO_ANSWER = Claim(
    "Not answered: all-reduce alone, and runs of this project's model, were not measured on the same number of GPUs.",
    "missing",
)


def sentences(measured: Measured) -> list[Claim]:
    """Limits of data parallelism, communication as a share of computation, measured times, and the errors of predicted
    costs of buckets."""
    layers, buckets = measured.tables["layer_limits"], measured.tables["bucket_costs"]
    data_parallel = _data_parallel(layers)
    claims = [_limits(data_parallel), _ratio(data_parallel)] if len(data_parallel) else []
    return [*claims, *_measured_times(data_parallel), *_buckets(buckets)] or [NO_ANSWER]


def _data_parallel(layers: pd.DataFrame) -> pd.DataFrame:
    """The backward passes by data parallelism, whose gradients are reduced; the table has the other layouts."""
    return layers[(layers["layout"] == DATA) & (layers["pass"] == BACKWARD)]


def _limits(rows: pd.DataFrame) -> Claim:
    """The smallest batches with which communication takes no longer than computation."""
    text = (
        "By the measured rates, communication takes no longer than computation in batches of at least {tokens}"
        " tokens{runs} (data parallelism on {devices} GPUs)."
    )
    tokens = interval(rows["fewest_tokens"], count)
    runs = ", depending on the configuration" if len(rows) > 1 else ""
    devices = interval(rows[GPUS.key], count)
    return Claim(text, "predicted", tokens=tokens, devices=devices, runs=runs)


def _ratio(rows: pd.DataFrame) -> Claim:
    """Communication as a share of computation, and up to how many GPUs it takes no longer than computation."""
    text = (
        "At the measured rates, reducing the gradients of a feed-forward layer would take {share} of the time of its"
        " backward pass{runs}. With the measured batches, it would take no longer than computation on up to {gpus}"
        " GPUs, if the rates stayed the same."
    )
    runs = f" ({of_all(len(rows), len(rows))})" if len(rows) > 1 else ""
    gpus = interval(rows["most_devices"], count)
    return Claim(text, "predicted", share=interval(rows["ratio"], percent), runs=runs, gpus=gpus)


def _measured_times(data_parallel: pd.DataFrame) -> list[Claim]:
    rows = data_parallel.dropna(subset=["measured_transfer_ms", "measured_compute_ms"])
    if rows.empty:
        return []
    text = (
        "Measured under the profiler, computation takes {compute} times as long as predicted by these rates, and"
        " communication {transfer} times."
    )
    compute = interval(rows["measured_compute_ms"] / rows["compute_ms"], significant)
    transfer = interval(rows["measured_transfer_ms"] / rows["communication_ms"], significant)
    return [Claim(text, compute=compute, transfer=transfer)]


def _buckets(table: pd.DataFrame) -> list[Claim]:
    """The errors of the predicted costs, each for a size of buckets that was not fitted; how far the mean cost of the
    other sizes is off; and the fitted slowdown."""
    rows = table.dropna(subset=["error_ms", "other_sizes_ms"])
    if rows.empty:
        return []
    errors_ms, errors_of_means_ms = rows["error_ms"].abs(), (rows["other_sizes_ms"] - rows["measured_ms"]).abs()
    text = (
        "A model of DDP's buckets predicts the cost of communication with a mean error of {mean} ms (at most {most} ms)"
        " in {runs}; the mean cost of the other sizes of buckets as a prediction has a mean error of {without} ms."
    )
    errors_claim = Claim(
        text, "predicted", runs=of_all(len(rows), len(rows), "run"), most=significant(errors_ms.max()),
        mean=significant(errors_ms.mean()), without=significant(errors_of_means_ms.mean()),
    )  # fmt: skip
    text = "By the fitted model, each second of communication that overlaps computation lengthens it by {slowdown} s."
    within_spread, predictions = rows["within_spread"].dropna(), ""
    if len(within_spread):
        predictions = capital(of_all(int(within_spread.sum()), len(within_spread), "prediction"))
        text += " {within} are within {spreads} standard deviations of the measured cost."
    slowdown = interval(rows["slowdown"], significant)
    return [errors_claim, Claim(text, "predicted", within=predictions, slowdown=slowdown, spreads=MAX_DEVIATIONS)]


def rate_sources(machines: Iterable[Measured]) -> list[str]:
    """Where the computation rates in the tables are from, in words, each source once."""
    sources = (source for machine in machines for source in machine.tables["layer_limits"]["rate_from"].dropna())
    return [RATE_SOURCES[source] for source in dict.fromkeys(sources)]


def tables(measured: Measured) -> list[Part]:
    """Times by measured rates, and limits, for each configuration, layout and pass. Data parallelism and the cost of
    buckets, as predicted and as measured."""
    layers, buckets = measured.tables["layer_limits"], measured.tables["bucket_costs"]
    hidden = (PARALLEL.key,)  # if constant, since how a run reduced gradients does not affect the layouts
    return [
        ("One feed-forward layer at the measured rates, for each way to lay out the GPUs",
         rows_table(layers, KEYS_OF_LINES, LIMIT_COLUMNS, left_aligned=2, hidden_if_constant=hidden)),
        ("Data parallelism, backward pass of one layer, as predicted and as measured under the profiler",
         rows_table(_data_parallel(layers), KEYS_OF_LINES, LAYER_COLUMNS, hidden_if_constant=hidden)),
        ("Cost of DistributedDataParallel's buckets, as predicted and as measured (communication: under the profiler)",
         rows_table(buckets, (*KEYS_OF_LINES, PARALLEL.key), BUCKET_COLUMNS)),
    ]  # fmt: skip


def _error_cell(row: dict) -> str:
    if not known(row["error_ms"]):
        return ABSENT
    text = f"{row['error_ms']:+.2f}".replace("-", "−")
    return f"{text} !" if row["within_spread"] is False else text  # None: the spread is not known


LIMIT_COLUMNS = (
    ("layout", lambda row: row["layout"]),
    ("pass", lambda row: row["pass"]),
    ("computation rate", lambda row: rate(row["flop_per_s"])),
    ("bus bandwidth, GB/s", lambda row: significant(row["bus_gb_per_s"])),
    ("computation, ms", lambda row: significant(row["compute_ms"])),
    ("communication, ms", lambda row: significant(row["communication_ms"])),
    ("ratio", lambda row: percent(row["ratio"])),
    ("fewest tokens", lambda row: count(row["fewest_tokens"]) if known(row["fewest_tokens"]) else "none"),
    ("most GPUs", lambda row: count(row["most_devices"])),
)
LAYER_COLUMNS = (
    ("tokens", lambda row: count(row["tokens"])),
    ("computation predicted, ms", lambda row: significant(row["compute_ms"])),
    ("computation measured, ms", lambda row: significant(row["measured_compute_ms"])),
    ("communication predicted, ms", lambda row: significant(row["communication_ms"])),
    ("communication measured, ms", lambda row: significant(row["measured_transfer_ms"])),
)
BUCKET_COLUMNS = (
    ("buckets", lambda row: count(row["buckets"])),
    ("communication predicted, ms", lambda row: significant(row["communication_ms"])),
    ("communication measured, ms", lambda row: significant(row["transfer_ms"])),
    ("exposed predicted, ms", lambda row: significant(row["exposed_ms"])),
    ("slowdown", lambda row: significant(row["slowdown"])),
    ("cost predicted, ms", lambda row: significant(row["predicted_ms"])),
    ("cost measured, ms", lambda row: with_spread(row["measured_ms"], row["spread_ms"])),
    ("error, ms", _error_cell),
)
