"""One feed-forward layer on several GPUs: its times by measured rates, the limits that follow, and measured times."""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pandas as pd

from cs336_model import ranges
from cs336_model.arithmetic.flops import ModelShape
from cs336_model.arithmetic.layer_limits import (
    DATA,
    LAYOUTS,
    MATRICES,
    PASSES,
    Layer,
    Rates,
    fewest_tokens,
    most_devices,
)
from cs336_model.arithmetic.memory import ELEMENT_BYTES, NUMBER_BYTES
from cs336_model.arithmetic.rings import Links
from profile_grid.study.dimensions import GPUS, LEADING, OPTIMIZER, PARALLEL, keys_without
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables import classes, texts
from profile_grid.tables.ideal import shape_of_run
from profile_grid.tables.model_parts import KEY_COLUMNS, ranges_with_parts
from profile_grid.tables.per_pass import Merged, as_floats

ROOF, LAYER = "roof", "layer"  # sources of a rate of computation: see the column rate_from
ROOF_BY_PRECISION = {"bf16-weights": "bf16"}  # the roofs whose names are not those of the precisions
LAYER_KEYS = keys_without(PARALLEL.key, OPTIMIZER.key)  # runs that agree in these have the same layer


class ComputationRate(NamedTuple):
    """A measured rate of one GPU."""

    flop_per_s: float
    source: str  # ROOF or LAYER


def layer_limits(merged: Merged) -> pd.DataFrame:
    """One row per configuration on several GPUs, layout and pass that communicates, for one feed-forward layer of this
    project's model. A configuration has no rows without a computation rate or all-reduce alone on as many GPUs."""
    links_by_gpus, compute_ms_by_pass = links_of_largest(merged), _layer_matmuls_ms(merged)
    rates = _computation_rates(merged, compute_ms_by_pass)
    transfer_ms_by_run = _layer_transfers_ms(merged)
    rows = []
    for run in _run_per_configuration(merged):
        shape, links, rate = shape_of_run(run), links_by_gpus.get(run[GPUS.key]), rates.get(run["run"])
        if shape is None or links is None or rate is None:
            continue
        columns_of_run = {name: run[name] for name in LEADING} | {
            "rate_from": rate.source, "flop_per_s": rate.flop_per_s, "bus_gb_per_s": links.bytes_per_s / 1e9,
        }  # fmt: skip
        for row in _predicted_rows(layer_of(shape, run), run[GPUS.key], Rates(rate.flop_per_s, links)):
            measured = {"measured_compute_ms": None, "measured_transfer_ms": None}
            if row["layout"] == DATA:  # as the runs are measured; only the backward pass communicates
                measured["measured_compute_ms"] = compute_ms_by_pass.get((run["run"], row["pass"]))
                measured["measured_transfer_ms"] = transfer_ms_by_run.get(run["run"])
            rows.append(columns_of_run | row | measured)
    return LAYER_LIMITS.table(rows)


def _predicted_rows(layer: Layer, devices: int, rates: Rates) -> Iterator[dict]:
    """Sizes, times and limits of every layout and pass that communicates."""
    for layout in LAYOUTS:
        for pass_name in PASSES:
            communication_s = rates.communication_s(layer, layout, pass_name, devices)
            if not communication_s:  # 0, or None if the layout needs another number of GPUs
                continue
            compute_s = rates.compute_s(layer, pass_name, devices)
            fewest = fewest_tokens(layer, layout, pass_name, devices, rates)
            yield {
                "layout": layout, "pass": pass_name, "tokens": layer.tokens, "d_model": layer.d_model,
                "d_ff": layer.d_ff, "weight_bytes": layer.weight_bytes, "activation_bytes": layer.activation_bytes,
                "compute_ms": 1e3 * compute_s, "communication_ms": 1e3 * communication_s,
                "ratio": communication_s / compute_s,
                "fewest_tokens": None if fewest == math.inf else math.ceil(fewest),
                "most_devices": most_devices(layer, layout, pass_name, rates),
            }  # fmt: skip


def layer_of(shape: ModelShape, run: Mapping) -> Layer:
    """The feed-forward layer of a run, with the tokens of all GPUs; `shape` has those of one GPU."""
    weight_bytes, activation_bytes = NUMBER_BYTES[run["precision"]].number, ELEMENT_BYTES[run["precision"]]
    return Layer(shape.tokens * run[GPUS.key], shape.d_model, shape.d_ff, weight_bytes, activation_bytes)


def _run_per_configuration(merged: Merged) -> list[dict]:
    """One run of every configuration on several GPUs, preferably one that reduces gradients one by one after the
    backward pass: there, kernels and collectives do not slow each other down."""
    runs = merged["runs"]
    runs = runs[as_floats(runs[GPUS.key]) > 1]
    # `naive`, which reduces one by one, is the first of PARALLEL.values on several GPUs
    naive_first = runs.sort_values(PARALLEL.key, key=lambda names: names.map(PARALLEL.values.index), kind="stable")
    return naive_first.drop_duplicates(LAYER_KEYS).sort_index().to_dict("records")


def links_of_largest(merged: Merged) -> dict[int, Links]:
    """By number of GPUs, links without latency that have the bus bandwidth of the largest all-reduce alone."""
    table = merged["all_reduce"]
    links = {}
    for count, rows in table.groupby(GPUS.key):
        largest = rows[rows["bytes"] == rows["bytes"].max()]
        seconds = as_floats(largest["mean_ms"]).mean() / 1e3
        bus_bytes = 2 * (count - 1) / count * float(largest["bytes"].iloc[0])  # that each GPU sends in a ring
        links[int(count)] = Links(bus_bytes / seconds)
    return links


def _computation_rates(merged: Merged, layer_ms: dict[tuple[str, str], float]) -> dict[str, ComputationRate]:
    """By run the rate of matrix multiplies: the highest roof that any run measured in this precision; without one, the
    rate of the run's own feed-forward layers in the forward pass, from `layer_ms`. Other runs are left out."""
    roofs = merged["roofs"]
    roof_rates = as_floats(roofs["reached_per_s"]).groupby(roofs["roof"]).max().dropna().to_dict()
    rates = {}
    for run in merged["runs"].to_dict("records"):
        shape, roof = shape_of_run(run), ROOF_BY_PRECISION.get(run["precision"], run["precision"])
        forward_ms = layer_ms.get((run["run"], ranges.FORWARD))
        if roof in roof_rates:
            rates[run["run"]] = ComputationRate(float(roof_rates[roof]), ROOF)
        elif shape is not None and forward_ms:
            flops = layer_of(shape, run).flops(ranges.FORWARD) / run[GPUS.key]
            rates[run["run"]] = ComputationRate(flops / (forward_ms / 1e3), LAYER)
    return rates


def _layer_matmuls_ms(merged: Merged) -> dict[tuple[str, str], float]:
    """Mean GPU time, in ms, of the matrix multiplies of one feed-forward layer, by run and pass."""
    kernels = merged.kernels
    kernels = texts.as_texts(kernels[classes.is_matmul(kernels["class"])])
    parts = ranges_with_parts(kernels)
    in_layers = kernels.merge(parts[parts["part"] == ranges.FEED_FORWARD], on=KEY_COLUMNS, validate="many_to_one")
    sums_ms = as_floats(in_layers["total_ns"]).groupby([in_layers["run"], in_layers["pass"]]).sum() / 1e6
    layers = merged["runs"].set_index("run")["num_layers"].dropna().to_dict()
    return {
        (run, pass_name): ms / float(merged.captured_steps[run]) / float(layers[run])
        for (run, pass_name), ms in sums_ms.items()
        if run in layers
    }


def _layer_transfers_ms(merged: Merged) -> dict[str, float]:
    """By run, the mean ms of the transfers of one layer's all-reduces, if each matrix of the layer has its own."""
    runs, collectives = merged["runs"], merged["collectives"]
    unbucketed = collectives[collectives["bucket"].isna()]  # those of a matrix are recognized by their bytes
    times_ms = {}
    for run in runs[as_floats(runs[GPUS.key]) > 1].to_dict("records"):
        shape = shape_of_run(run)
        if shape is None:
            continue
        matrix_bytes = shape.d_model * shape.d_ff * NUMBER_BYTES[run["precision"]].number
        is_of_matrix = (unbucketed["run"] == run["run"]) & (as_floats(unbucketed["bytes"]) == matrix_bytes)
        if is_of_matrix.any():
            times_ms[run["run"]] = MATRICES * as_floats(unbucketed["transfer_ns"][is_of_matrix]).mean() / 1e6
    return times_ms


LAYER_LIMITS = TableSpec(
    "layer_limits",
    "One row per configuration on several GPUs, layout and pass: a feed-forward layer, its times at the measured rates,"
    " and when communication takes longer than computation",
    columns(f"""
    layout | text | | {", ".join(LAYOUTS)}: see cs336_model/arithmetic/layer_limits.py
    pass | text | | forward or backward; only passes that communicate
    tokens | int | tokens | of the batch of all GPUs
    d_model | int | | width of the model
    d_ff | int | | width of the layer
    weight_bytes | int | B | of a weight, and of its gradient
    activation_bytes | int | B | of an activation
    flop_per_s | float | FLOP/s | measured rate of one GPU
    rate_from | text | | {ROOF}: the fastest matrix multiply that the stage counters measured in this precision; \
        {LAYER}: the matrix multiplies of this layer in the forward pass of this run
    bus_gb_per_s | float | 10^9 B/s | measured bus bandwidth of the largest all-reduce alone on as many GPUs
    compute_ms | float | ms | FLOPs of the pass ÷ GPUs ÷ flop_per_s
    communication_ms | float | ms | of its collectives, one after another, without latency
    ratio | float | | communication ÷ computation
    fewest_tokens | float | tokens | the smallest batch for which communication takes no longer than computation; 0 if \
        every batch does, empty if none does
    most_devices | int | | largest power of two of GPUs on which communication takes no longer than computation, for \
        this batch and at unchanged rates; 1 if there is none
    measured_compute_ms | float | ms | GPU time of the matrix multiplies of one layer, mean over layers and steps; \
        only for data parallel
    measured_transfer_ms | float | ms | transfers of the three all-reduces of one layer, mean over layers, ranks and \
        steps; empty if matrices are not reduced separately
"""),
    make=layer_limits,
)
