"""The tables of (l): every kernel configuration with its verdict, sums, roofs, and FLOPs beside those of the shapes."""

from __future__ import annotations

import pandas as pd

from kernel_tables.counters.verdicts import RULES
from profile_grid.questions.l_counters.matmuls import counter_matmuls
from profile_grid.questions.l_counters.sums import counter_sums
from profile_grid.stages.counters.described import OF_BYTES, OF_FLOPS, OF_RATES
from profile_grid.study.described import Described, Shown, SummaryTable, columns
from profile_grid.study.dimensions import LEADING
from profile_grid.tables.per_pass import Merged
from profile_grid.tables.texts import as_texts

TOLD_OF_A_KERNEL = [
    "flops", "dram_bytes", "flop_per_s", "dram_bytes_per_s", "flops_per_byte", "compute_share", "memory_share",
    "occupancy", "occupancy_possible", "limited_by", "waves", "tail", "stall", "second_stall", "verdict", "because",
]  # fmt: skip
CONFIGURATION = ["kernel", "class", "grid", "block"]


def counter_kernels(merged: Merged) -> pd.DataFrame:
    """(l) One row per run and kernel configuration, the most time first: its time in a single pass, and its verdict."""
    rows = as_texts(merged["counters"])
    steps = rows["run"].map(merged.captured_steps).astype("float64")
    time_ms = rows["total_ns"] / steps / 1e6
    table = rows[[*LEADING, *CONFIGURATION]].assign(
        invocations=rows["launches"] / steps,
        gpu_time_ms=time_ms,
        share=time_ms / time_ms.groupby(rows["run"]).transform("sum"),
        **rows[TOLD_OF_A_KERNEL],
    )
    return table.reset_index(drop=True)


def counter_roofs(merged: Merged) -> pd.DataFrame:
    """(l) One row per run and roof: the data sheet beside what a copy and matrix multiplies reached on the GPU."""
    rows = as_texts(merged["roofs"])
    return rows.assign(reached_share=rows["reached_per_s"] / rows["data_sheet_per_s"]).reset_index(drop=True)


OF_A_PASS = """
    invocations | | launches in a single pass: the mean over the measured steps
    gpu_time_ms | ms | GPU time in a single pass: the mean over the measured steps
"""
TABLES = {
    "counter_kernels": SummaryTable(
        counter_kernels,
        Described(
            "(l) One row per run and kernel configuration (and depth of a matrix multiply), the most time first",
            columns(f"""
    kernel | | full name
    class | | kind of work
    grid | | blocks of the launch
    block | | threads of a block
{OF_A_PASS}
    share | of 1 | of the time of all kernels
    flops | FLOP | of one launch, by counters
    dram_bytes | B | of one launch, by counters
    flop_per_s | FLOP/s | flops ÷ mean time in the capture
    dram_bytes_per_s | B/s | dram_bytes ÷ mean time in the capture
    flops_per_byte | FLOP/B | flops ÷ dram_bytes
    compute_share | of 1 | as in counters
    memory_share | of 1 | as in counters
    occupancy | of 1 | as in counters
    occupancy_possible | of 1 | as in counters
    limited_by | | as in counters
    waves | | as in counters
    tail | of 1 | as in counters
    stall | | as in counters
    second_stall | | as in counters
    verdict | | {"; ".join(f"{verdict}: {rule}" for verdict, rule in RULES.items())}
    because | | the figures by which that rule speaks
"""),
        ),
    ),
    "counter_sums": SummaryTable(
        counter_sums,
        Described(
            "(l) One row per run and phase, class, part of the model, or range: sums of a single pass",
            columns(f"""
    by | | what the row sums: phase, class, part, range; each of the four holds all kernels
    phase | | phase; of a part the pass: forward (with loss), backward, recomputation, optimizer; of a class all phases
    name | | the phase, class or part, or the ranges inside the phase
{OF_FLOPS}{OF_BYTES}{OF_A_PASS}
    counted_share | of 1 | of the time, that of kernels with counters; sums and rates are of these
{OF_RATES}
    share | of 1 | of the time of all kernels
"""),
        ),
    ),
    "counter_matmuls": SummaryTable(
        counter_matmuls,
        Described(
            "(l) One row per run of this project's model, pass and part with a matrix multiply, of a single pass",
            columns("""
    pass | | forward, backward, or recomputation
    part | | part of the model
    counted_flops | FLOP | of its matrix multiplies, by counters
    shape_flops | FLOP | 2 M N K of them, from the shapes
    ratio | | counted ÷ from the shapes; empty where not all launches were counted
    padded_ratio | | FLOPs in whole tiles of its kernels ÷ from the shapes; empty where names tell no tile of each
    within_padding | | whether ratio is padded_ratio and at most 1 ÷ depth and 2 % more; without one, 1 within 5 %
    counted_share | of 1 | of its matrix multiplies' time, that of launches with counters
"""),
        ),
    ),
    "counter_roofs": SummaryTable(
        counter_roofs,
        Described(
            "(l) One row per run and roof: the data sheet beside what was reached on the GPU",
            columns("""
    roof | | as in roofs
    unit | | as in roofs
    data_sheet_per_s | | as in roofs
    reached_per_s | | as in roofs
    reached_share | of 1 | reached ÷ data sheet
"""),
        ),
    ),
}
SHOWN = {
    "counter_kernels": Shown("Kernels by counters", "counter_kernels"),
    "counter_sums": Shown("What was done, by phase, class, part and range", "counter_sums"),
    "counter_matmuls": Shown("FLOPs of matrix multiplies: counted, and from the shapes", "counter_matmuls"),
    "counter_roofs": Shown("Roofs", "counter_roofs"),
}
