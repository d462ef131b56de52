"""What the columns of the tables of counters mean."""

from __future__ import annotations

from kernel_tables.counters.verdicts import RULES
from profile_grid.study.table_spec import WHERE, TableSpec, columns
from profile_grid.tables import findings

OF_FLOPS = columns("""
    fp32_flops | float | FLOP | additions and multiplications in fp32 on ordinary cores, an FMA as two, by counters
    tf32_flops | float | FLOP | operations of tensor cores on tf32, by counters
    bf16_flops | float | FLOP | operations of tensor cores on bf16, by counters
    fp16_flops | float | FLOP | operations of tensor cores on fp16, by counters
""")
OF_BYTES = columns("""
    dram_bytes | float | B | read from and written to the GPU's memory, its caches emptied before
    l2_bytes | float | B | that passed the L2 cache
""")
OF_RATES = columns("""
    flops | float | FLOP | of all kinds
    flop_per_s | float | FLOP/s | flops ÷ time in the capture
    dram_bytes_per_s | float | B/s | dram_bytes ÷ time in the capture; above the roof where caches held the data
    flops_per_byte | float | FLOP/B | flops ÷ dram_bytes: the arithmetic intensity
    compute_share | float | of 1 | time that its FLOPs take at the roofs of their kinds as calibrated, ÷ its time
    memory_share | float | of 1 | time that its DRAM bytes take at the memory's roof as calibrated, ÷ its time
""")
VERDICTS = "; ".join(f"{verdict}: {rule}" for verdict, rule in RULES.items())
COUNTER_FINDINGS = TableSpec(
    "counter_findings",
    "One row per run with the stage counters and finding of the rules of the diagnosis that need counters",
    findings.FINDINGS.columns,
)
COUNTERS_TABLE = TableSpec(
    "counters",
    "One row per run with the stage counters and kernel configuration; counters are of one launch of it",
    columns(
        """
    kernel | text | | full name
    class | text | | kind of work, by the rules of kernel_tables
    grid | text | | blocks of the launch, x, y and z
    block | text | | threads of a block, x, y and z
    launches | int | | launches in all measured steps of the capture
    total_ns | int | ns | sum of their durations in the capture
    min_ns | int | ns | shortest
    max_ns | int | ns | longest
    not_counted | text | | why it has no counters; empty where it has
""",
        OF_FLOPS,
        OF_BYTES,
        OF_RATES,
        f"""
    occupancy | float | of 1 | warps that were active, of those that a multiprocessor holds
    occupancy_possible | float | of 1 | the most that registers, shared memory and blocks allow
    limited_by | text | | what allows no more; empty where nothing does
    registers | float | | of a thread
    waves | float | | times that its blocks fill the GPU
    tail | float | of 1 | places for blocks that stay empty in the last wave, of those in all its waves
    stall | text | | what warps waited for most, in the first launch of the kernel, grid and block
    stall_share | float | of 1 | of the time in which warps waited
    second_stall | text | | what they waited for next
    second_stall_share | float | of 1 | of the time in which warps waited
    verdict | text | | {VERDICTS}
    because | text | | the figures by which that rule speaks
""",
    ),
)
COUNTER_RANGES = TableSpec(
    "counter_ranges",
    "One row per run with the stage counters, step, phase, range and class: sums over its kernels",
    columns(
        WHERE,
        """
    class | text | | kind of work
    launches | int | | kernels
    total_ns | int | ns | sum of their durations in the capture
    counted_ns | int | ns | of those that have counters
""",
        OF_FLOPS,
        OF_BYTES,
    ),
)
ROOFS = TableSpec(
    "roofs",
    "One row per run with the stage counters and roof: the most that the GPU can do",
    columns("""
    roof | text | | memory, or the kind of FLOPs: fp32 on ordinary cores; tf32, bf16 and fp16 on tensor cores
    unit | text | | of both rates
    data_sheet_per_s | float | | rate by the maker's data sheet; empty where it is not known to this project
    reached_per_s | float | | rate that a copy, or a matrix multiply of 8192³, reached on this GPU; empty where there \
        is none
"""),
)
TABLES = (
    COUNTER_FINDINGS,
    COUNTERS_TABLE,
    COUNTER_RANGES,
    ROOFS,
)
