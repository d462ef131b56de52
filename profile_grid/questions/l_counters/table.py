"""The tables of (l): kernel configurations with their verdicts, sums, roofs, and FLOPs compared with the shapes."""

import pandas as pd

from kernel_tables.counters.joining import RULES
from profile_grid.questions.l_counters.matmuls import counter_matmuls
from profile_grid.questions.l_counters.sums import counter_sums
from profile_grid.stages.counters.tables import BYTE_COLUMNS, COUNTERS_TABLE, FLOP_COLUMNS, RATE_COLUMNS, ROOFS
from profile_grid.study.dimensions import LEADING
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.tables.per_pass import Merged

COUNTED_COLUMNS = [  # of KERNEL_COLUMNS, those that are declared as in the merged table `counters`
    "compute_share", "memory_share", "occupancy", "occupancy_possible", "limited_by", "waves", "tail", "stall",
    "second_stall",
]  # fmt: skip
KERNEL_COLUMNS = [
    "flops", "dram_bytes", "flop_per_s", "dram_bytes_per_s", "flops_per_byte", *COUNTED_COLUMNS, "verdict", "because",
]  # fmt: skip
CONFIGURATION_COLUMNS = ["kernel", "class", "grid", "block"]


def counter_kernels(merged: Merged) -> pd.DataFrame:
    """(l) One row per run and kernel configuration, the longest first: its time in a single pass, and its verdict."""
    rows = merged["counters"]
    steps = rows["run"].map(merged.captured_steps).astype("float64")
    time_ms = rows["total_ns"] / steps / 1e6
    table = rows[[*LEADING, *CONFIGURATION_COLUMNS]].assign(
        invocations=rows["launches"] / steps,
        gpu_time_ms=time_ms,
        share=time_ms / time_ms.groupby(rows["run"]).transform("sum"),
        **rows[KERNEL_COLUMNS],
    )
    return table.reset_index(drop=True)


def counter_roofs(merged: Merged) -> pd.DataFrame:
    """(l) One row per run and roof: the data sheet, and the rate that a copy or matrix multiplies reached on the
    GPU."""
    rows = merged["roofs"]
    return rows.assign(reached_share=rows["reached_per_s"] / rows["data_sheet_per_s"]).reset_index(drop=True)


PASS_COLUMNS = columns("""
    invocations | float | | launches in a single pass: the mean over the measured steps
    gpu_time_ms | float | ms | GPU time in a single pass: the mean over the measured steps
""")
TABLES = (
    TableSpec(
        "counter_kernels",
        "(l) One row per run and kernel configuration (and depth of a matrix multiply), the most time first",
        columns(
            """
    kernel | text | | full name
    class | text | | kind of work
    grid | text | | blocks of the launch
    block | text | | threads of a block
""",
            PASS_COLUMNS,
            """
    share | float | of 1 | of the time of all kernels
    flops | float | FLOP | of one launch, by counters
    dram_bytes | float | B | of one launch, by counters
    flop_per_s | float | FLOP/s | flops ÷ mean time in the capture
    dram_bytes_per_s | float | B/s | dram_bytes ÷ mean time in the capture
    flops_per_byte | float | FLOP/B | flops ÷ dram_bytes
""",
            COUNTERS_TABLE.as_in(*COUNTED_COLUMNS),
            f"""
    verdict | text | | {"; ".join(f"{verdict}: {rule}" for verdict, rule in RULES.items())}
    because | text | | the numbers for that verdict
""",
        ),
        make=counter_kernels,
    ),
    TableSpec(
        "counter_sums",
        "(l) One row per run and phase, class, part of the model, or range: sums of a single pass",
        columns(
            """
    by | text | | what the row sums: phase, class, part, range; each of the four holds all kernels
    phase | text | | phase; of a part the pass: forward (with loss), backward, recomputation, optimizer; of a class \
        all phases
    name | text | | the phase, class or part, or the ranges inside the phase
""",
            FLOP_COLUMNS,
            BYTE_COLUMNS,
            PASS_COLUMNS,
            "counted_share | float | of 1 | of the time, that of kernels with counters; sums and rates are of these",
            RATE_COLUMNS,
            "share | float | of 1 | of the time of all kernels",
        ),
        make=counter_sums,
    ),
    TableSpec(
        "counter_matmuls",
        "(l) One row per run of this project's model, pass and part with a matrix multiply, of a single pass",
        columns("""
    pass | text | | forward, backward, or recomputation
    part | text | | part of the model
    counted_flops | float | FLOP | of its matrix multiplies, by counters
    shape_flops | float | FLOP | 2 M N K for each of them, from the shapes
    ratio | float | | counted ÷ from the shapes; empty if a launch was not counted
    padded_ratio | float | | FLOPs in complete tiles of its kernels ÷ those from the shapes; empty if a kernel's \
        name has no tile
    within_padding | bool | | whether ratio is at least padded_ratio and exceeds it by at most 1 ÷ depth + 2 %; if \
        padded_ratio is empty, whether ratio is within 5 % of 1
    counted_share | float | of 1 | of its matrix multiplies' time, that of launches with counters
"""),
        make=counter_matmuls,
    ),
    TableSpec(
        "counter_roofs",
        "(l) One row per run and roof: the rate in the data sheet, and the rate reached on the GPU",
        columns(
            ROOFS.as_in(),
            """
    reached_share | float | of 1 | reached ÷ data sheet
""",
        ),
        make=counter_roofs,
    ),
)
PAGE_TABLES = (
    PageTable("counter_kernels", "Kernels by counters"),
    PageTable("counter_sums", "What was done, by phase, class, part and range"),
    PageTable("counter_matmuls", "FLOPs of matrix multiplies: counted, and from the shapes"),
    PageTable("counter_roofs", "Roofs"),
)
