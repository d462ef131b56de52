"""What every column of every table means: the one place from which the data dictionary is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from profile_grid.errors import OutsideError
from profile_grid.markdown import Table, code, escaped, pipe_table


class UndocumentedColumn(OutsideError):
    """A table and the dictionary do not agree; the message is one line."""


@dataclass(frozen=True)
class Column:
    """One column: its unit ("" for none), and its meaning in one line."""

    name: str
    unit: str
    meaning: str


@dataclass(frozen=True)
class Described:
    """One table: what a row is, and its columns after run, model, context_length and mode."""

    rows: str
    columns: tuple[Column, ...]


def _columns(text: str) -> tuple[Column, ...]:
    return tuple(Column(*(part.strip() for part in line.split("|"))) for line in text.splitlines() if line.strip())


LEADING = _columns("""
    run | | model, context and mode in one name; the folder below results/runs
    model | | name of the model in config.yaml
    context_length | tokens | length of every sequence
    mode | | forward, forward_backward, or train_step
""")
PER_PASS = """
    gpu_time_ms | ms | GPU time in a single pass: the mean over the measured steps
    gpu_time_std_ms | ms | standard deviation (n − 1) of that between the measured steps
    invocations | | launches in a single pass: the mean over the measured steps
"""
SAME = """
    same_in_every_step | | whether every measured step had the same number of launches
"""
WHERE = """
    step | | number of the measured step, from 0; −1 in none
    phase | | range directly inside step: forward, loss, backward, optimizer, synchronize; (outside) for none
    range | | ranges inside the phase, outermost first, joined by " > "; empty directly in the phase
"""
TABLES: Mapping[str, Described] = {
    "runs": Described(
        "One row per run of the grid",
        _columns("""
    precision | | fp32, or bf16 by autocast
    batch_size | sequences | sequences per step
    d_model | | width of the residual stream
    d_ff | | width inside the feed-forward
    num_layers | | Transformer blocks
    num_heads | | attention heads per block
    vocab_size | tokens | size of the vocabulary
    parameters | | trained parameters
    timing_status | | complete, out_of_memory, incomplete or missing: the process without a profiler
    capture_status | | the same of the process under the profiler
    reason | | why a run is not complete
    oom_during | | what was running when memory ran out
    oom_requested_bytes | B | what the allocation that failed asked for
    oom_free_bytes | B | what the GPU had free then
    oom_total_bytes | B | memory of the GPU
    backend | | profiler: nsys, or torch (PyTorch's own)
    device | | cuda or cpu
    device_name | | name of the GPU or CPU
    gpu_uuid_sha256 | | hash of the GPU's UUID
    driver | | version of the NVIDIA driver
    cuda | | version of CUDA that PyTorch was built with
    torch | | version of PyTorch
    python | | version of Python
    nsys | | version of Nsight Systems
    steps_timed | | measured steps of the timing
    steps_captured | | measured steps in the capture
    peak_allocated_bytes | B | largest sum of live tensors on the GPU while timed
    peak_reserved_bytes | B | largest amount that PyTorch's allocator held while timed
    device_total_bytes | B | memory of the GPU
    forward_flops | FLOP | operations of matrix multiplies in one forward pass, from the shapes
    loss | nat | loss of the last timed step
    sm_clock_mhz | MHz | clock of the GPU after the timing
    note | | what a reader should know about these figures
    timing_started_utc | | when the timing process started
    capture_started_utc | | when the capture process started
"""),
    ),
    "timings": Described(
        "One row per run and phase, from the process without a profiler",
        _columns("""
    phase | | step (by timeit.default_timer, device synchronize included), or one phase of it
    n | | measured steps
    mean_ms | ms | mean over the measured steps
    std_ms | ms | standard deviation (n − 1)
    min_ms | ms | shortest step
    max_ms | ms | longest step
    status | | as timing_status of runs; without figures where it is not complete
"""),
    ),
    "steps": Described(
        "One row per run, phase and timed step: every single time",
        _columns("""
    phase | | step, or one phase of it
    step | | number of the measured step, from 0
    ms | ms | time of this step or phase, without a profiler
"""),
    ),
    "cost": Described(
        "One row per run and process: where its seconds went",
        _columns("""
    stage | | timing or capture
    import_s | s | importing torch and the model
    context_s | s | making the CUDA context
    initialise_s | s | making weights, optimizer state and data
    warmup_s | s | warm-up steps
    measured_s | s | measured steps
    profiler_s | s | starting and ending the profiler inside the program
    export_s | s | exporting the report to SQLite
    other_s | s | interpreter, profiler outside the program, writing results
    total_s | s | the whole process
    overhead_s | s | all that is neither a warm-up nor a measured step
"""),
    ),
    "kernels": Described(
        "One row per run, step, phase, range and kernel name",
        _columns(f"""{WHERE}
    kernel | | full name; of an ATen operator on a CPU
    class | | kind of work, by the rules of kernel_tables
    launches | | executions
    total_ns | ns | sum of their durations
    mean_ns | ns | mean duration
    min_ns | ns | shortest
    max_ns | ns | longest
"""),
    ),
    "phases": Described(
        "One row per run, step and phase, and one with phase = step for the whole step",
        _columns("""
    step | | number of the measured step, from 0
    phase | | forward, loss, backward, optimizer, synchronize, (outside); step: all of them
    wall_ns | ns | wall time of the NVTX range on the CPU
    gpu_span_ns | ns | start of the first kernel or memory operation to the end of the last
    gpu_busy_ns | ns | time in which at least one of them ran
    kernel_ns | ns | sum of the durations of kernels
    kernels | | kernels
    memop_ns | ns | sum of the durations of memory operations (copies and fills by the driver)
    memops | | memory operations
"""),
    ),
    "ranges": Described(
        "One row per run, step, phase and range; what nested ranges launched counts in the outer ones too",
        _columns(f"""{WHERE}
    instances | | times the range was opened
    wall_ns | ns | wall time of the range on the CPU, summed over instances
    gpu_time_ns | ns | sum of the durations of kernels launched inside
    kernels | | kernels launched inside
    memop_time_ns | ns | sum of the durations of memory operations launched inside
    memops | | memory operations launched inside
"""),
    ),
    "forward_time": Described(
        "(a) One row per run: its forward pass, and its step with and without the profiler",
        _columns("""
    timing_status | | as in runs
    capture_status | | as in runs
    backend | | as in runs
    forward_wall_ms | ms | wall time of the NVTX range forward, mean over the measured steps
    forward_wall_std_ms | ms | its standard deviation (n − 1)
    forward_gpu_span_ms | ms | first kernel of the forward pass to the end of its last
    forward_gpu_span_std_ms | ms | its standard deviation
    forward_gpu_busy_ms | ms | time in which at least one kernel of the forward pass ran
    forward_gpu_busy_std_ms | ms | its standard deviation
    step_wall_ms | ms | wall time of the NVTX range step under the profiler, device synchronize included
    step_wall_std_ms | ms | its standard deviation
    unprofiled_step_ms | ms | the same step timed by Python without a profiler
    unprofiled_step_std_ms | ms | its standard deviation
    steps_timed | | measured steps of the timing
    steps_captured | | measured steps in the capture
    forward_kernels | | kernels in one forward pass
    mean_kernel_us | µs | mean duration of a kernel of the forward pass
    idle_share | of 1 | share of the profiled step in which the GPU did nothing
    overhead_ratio | | step_wall_ms ÷ unprofiled_step_ms
    overhead_ratio_std | | its standard deviation, from those of both
    matches_python | | whether overhead_ratio is within 5 % of one
"""),
    ),
    "top_kernels": Described(
        "(b, c) One row per run, scope and rank: the kernels with the most GPU time",
        _columns(f"""
    scope | | forward; forward without matrix multiplies; all phases
    rank | | 1 is the kernel with the most GPU time in the scope
    kernel | | full name
    class | | kind of work
    {PER_PASS}
    {SAME}
    share | of 1 | of the GPU time of the forward pass or of all phases
    same_as_forward | | rank 1 of all phases: whether it is also the top kernel of the model's inference run
"""),
    ),
    "forward_classes": Described(
        "(c) One row per run and kernel class of the forward pass",
        _columns(f"""
    class | | kind of work
    {PER_PASS}
    {SAME}
    share | of 1 | of the forward pass's GPU time; sums to one
"""),
    ),
    "forward_parts": Described(
        "(c) One row per run and part of the model in the forward pass",
        _columns(f"""
    part | | innermost range that was open at the launch
    {PER_PASS}
    share | of 1 | of the forward pass's GPU time; sums to one
    other_time_ms | ms | the part of gpu_time_ms that is no matrix multiply
    other_share | of 1 | other_time_ms, of the forward pass's GPU time
    share_of_others | of 1 | of the forward pass's GPU time outside matrix multiplies; sums to one
"""),
    ),
    "class_shares": Described(
        "(d) One row per run, phase and kernel class",
        _columns(f"""
    phase | | a phase, or all phases
    class | | kind of work
    {PER_PASS}
    share | of 1 | of the phase's GPU time; sums to one
    share_of_step | of 1 | of the GPU time of all phases
"""),
    ),
    "attention": Described(
        "(e) One row per run and range of attention in the forward pass",
        _columns("""
    part | | name of the range, what is nested in it included
    instances_per_pass | | times the range is opened in one forward pass: once per layer
    gpu_time_ms | ms | GPU time in one forward pass
    gpu_time_std_ms | ms | its standard deviation between the measured steps
    gpu_time_per_layer_us | µs | gpu_time_ms ÷ instances_per_pass
    layers | | layers of the model
    flops_per_layer | FLOP | operations of one layer, from the shapes
    flops_formula | | their formula: B batch, H heads, S context, d_head size of a head
    flop_per_s | FLOP/s | flops_per_layer ÷ gpu_time_per_layer_us
    runtime_to_matmuls | | gpu_time_ms ÷ that of both matrix multiplies
    flops_to_matmuls | | flops_per_layer ÷ that of both matrix multiplies
"""),
    ),
}


def check_documented(name: str, table: pd.DataFrame) -> None:
    """Raises UndocumentedColumn where a table has a column that the dictionary lacks, or the other way round."""
    expected = [column.name for column in (*LEADING, *TABLES[name].columns)]
    unknown = sorted(set(table.columns) - set(expected))
    absent = sorted(set(expected) - set(table.columns))
    if unknown or absent:
        raise UndocumentedColumn(
            f"{name}: columns without a description: {', '.join(unknown) or 'none'}; described but not there:"
            f" {', '.join(absent) or 'none'}; both are mended in profile_grid/merging/columns.py"
        )


def dictionary() -> str:
    """The data dictionary of all tables, in Markdown."""
    parts = [
        "# Data dictionary\n\nEvery table is there twice: as CSV for people, as Parquet for programs. GPU time is"
        " the sum of the durations of kernels and memory operations (on a CPU: of outermost ATen operators). What was"
        " not measured is empty, never zero. Every table begins with the same columns:",
        _described(LEADING),
    ]
    for name, table in TABLES.items():
        parts += [f"## {name}\n\n{escaped(table.rows)}.", _described(table.columns)]
    return "\n\n".join(parts) + "\n"


def _described(columns: tuple[Column, ...]) -> str:
    rows = tuple((code(column.name, in_table=True), column.unit, escaped(column.meaning)) for column in columns)
    return pipe_table(Table(("column", "unit", "meaning"), rows, first_right=3))
