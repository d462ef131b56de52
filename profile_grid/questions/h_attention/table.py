"""The tables of (h): steps and the operator alone with every attention, compared with eager attention."""

import pandas as pd

from cs336_model.arithmetic.flops import sequences_per_gpu
from cs336_model.ranges import SCALED_DOT_PRODUCT_ATTENTION
from profile_grid.study.dimensions import ATTENTION, LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables import ideal, model_parts, names, ratios
from profile_grid.tables.per_pass import Merged, as_floats, per_pass

COMPARISON_COLUMNS = [column.name for column in (*ratios.TIME_OF_BASE, *ratios.VERDICT)]


def attention_times(merged: Merged) -> pd.DataFrame:
    """(h) One row per phase of every run that has a counterpart with another attention: the run's time, the time with
    eager attention, and the peak memory. A run without results has one row, of the step."""
    times = ratios.with_counterparts(merged["timings"], ATTENTION)[[*LEADING, "phase", "mean_ms", "std_ms", "status"]]
    keys = ["run", "phase"]
    comparisons = ratios.times_with_base(merged, ATTENTION)[[*keys, *COMPARISON_COLUMNS]]
    peak = as_floats(times["run"].map(merged["runs"].set_index("run")["peak_allocated_bytes"]))
    spreads = merged.spreads_of(times["run"], times["phase"])
    table = times.assign(
        peak_allocated_bytes=peak, process_spread=spreads["spread"], timed_processes=spreads["processes"]
    )
    return table.merge(comparisons, on=keys, how="left", validate="one_to_one")


def attention_operator(merged: Merged) -> pd.DataFrame:
    """(h) One row per run that has a counterpart with eager attention: GPU time of the operator in a forward pass of
    both, and the speed-ups at which the data sheet's FLOP/s and bytes/s would be reached."""
    kernels = merged.kernels
    is_inside = model_parts.has_range(kernels["range"], SCALED_DOT_PRODUCT_ATTENTION)
    times = per_pass(kernels[is_inside & (kernels["phase"] == names.FORWARD)], by=[], step_counts=merged.captured_steps)
    times = times.drop(columns=["total_ns", "same_in_every_step"])
    table = ratios.with_base(times, ATTENTION, "gpu_time_ms", "gpu_time_std_ms")
    runs = merged["runs"].set_index("run")
    bounds_ms = [_least_ms(runs.loc[run]) for run in table["run"]]
    least_ms = pd.DataFrame(bounds_ms, index=table.index, columns=["flops", "bytes"], dtype="float64")
    base_ms = table["base_gpu_time_ms"]
    return table.assign(ideal_by_flops=base_ms / least_ms["flops"], ideal_by_bytes=base_ms / least_ms["bytes"])


def _least_ms(run: pd.Series) -> tuple[float | None, float | None]:
    """Least ms of the operator in all layers: (by FLOP/s, by bytes/s). None if sizes or peaks are unknown."""
    sizes = [run[name] for name in ("context_length", "d_model", "num_layers")]
    if any(map(pd.isna, sizes)):  # a custom model
        return None, None
    context, d_model, layers = map(int, sizes)
    peaks, batch = ideal.peaks_of(run.get("device_name")), int(sequences_per_gpu(run))
    layer_ms = ideal.least_ms_of_attention(peaks, run["precision"], batch, context, d_model)
    return tuple(None if ms is None else layers * ms for ms in layer_ms)


TABLES = (
    TableSpec(
        "attention_times",
        "(h) One row per phase of every run that another differs from only in attention",
        columns(
            ratios.TIME_OF_A_RUN,
            """
    status | text | | as timing_status of runs; without times if it is not complete
    peak_allocated_bytes | float | B | peak memory of tensors; empty on a CPU
    process_spread | float | | relative standard deviation of times between processes, assumed of one process
    timed_processes | float | | processes that timed this run
""",
            ratios.TIME_OF_BASE,
            ratios.VERDICT,
        ),
        make=attention_times,
    ),
    TableSpec(
        "attention_operator",
        "(h) One row per run with a backend's attention: the operator in a forward pass, from the captures",
        columns(
            """
    gpu_time_ms | float | ms | GPU time of what ran inside scaled dot product attention, mean over the measured steps
    gpu_time_std_ms | float | ms | its standard deviation between the measured steps
    invocations | float | | launches inside it in a single pass
""",
            ratios.BASE_RUN,
            """
    base_gpu_time_ms | float | ms | GPU time with eager attention
    base_gpu_time_std_ms | float | ms | its standard deviation
""",
            ratios.SPEED_UP,
            """
    ideal_by_flops | float | | base_gpu_time_ms ÷ time of the products of unmasked scores at the maker's peak FLOP/s
    ideal_by_bytes | float | | base_gpu_time_ms ÷ time to move queries, keys, values and output once at the maker's \
        peak bytes/s
""",
        ),
        make=attention_operator,
    ),
)
PAGE_TABLES = (
    PageTable("attention_times", "Time with every attention"),
    PageTable("attention_operator", "Only the attention operator, in the forward pass"),
)
