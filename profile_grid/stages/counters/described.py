"""What the columns of the tables of counters mean."""

from __future__ import annotations

from kernel_tables.counters.verdicts import RULES
from profile_grid.study.described import WHERE, Described, columns
from profile_grid.tables import findings

OF_FLOPS = """
    fp32_flops | FLOP | additions and multiplications in fp32 on ordinary cores, an FMA as two, by counters
    tf32_flops | FLOP | operations of tensor cores on tf32, by counters
    bf16_flops | FLOP | operations of tensor cores on bf16, by counters
    fp16_flops | FLOP | operations of tensor cores on fp16, by counters
"""
OF_BYTES = """
    dram_bytes | B | read from and written to the GPU's memory, its caches emptied before
    l2_bytes | B | that passed the L2 cache
"""
OF_RATES = """
    flops | FLOP | of all kinds
    flop_per_s | FLOP/s | flops ÷ time in the capture
    dram_bytes_per_s | B/s | dram_bytes ÷ time in the capture; above the roof where caches held the data
    flops_per_byte | FLOP/B | flops ÷ dram_bytes: the arithmetic intensity
    compute_share | of 1 | time that its FLOPs take at the roofs of their kinds as calibrated, ÷ its time
    memory_share | of 1 | time that its DRAM bytes take at the memory's roof as calibrated, ÷ its time
"""
VERDICTS = "; ".join(f"{verdict}: {rule}" for verdict, rule in RULES.items())
DESCRIBED = {
    "counter_findings": Described(
        "One row per run with the stage counters and finding of the rules of the diagnosis that need counters",
        findings.DESCRIBED.columns,
    ),
    "counters": Described(
        "One row per run with the stage counters and kernel configuration; counters are of one launch of it",
        columns(f"""
    kernel | | full name
    class | | kind of work, by the rules of kernel_tables
    grid | | blocks of the launch, x, y and z
    block | | threads of a block, x, y and z
    launches | | launches in all measured steps of the capture
    total_ns | ns | sum of their durations in the capture
    min_ns | ns | shortest
    max_ns | ns | longest
    not_counted | | why it has no counters; empty where it has
{OF_FLOPS}{OF_BYTES}{OF_RATES}
    occupancy | of 1 | warps that were active, of those that a multiprocessor holds
    occupancy_possible | of 1 | the most that registers, shared memory and blocks allow
    limited_by | | what allows no more; empty where nothing does
    registers | | of a thread
    waves | | times that its blocks fill the GPU
    tail | of 1 | places for blocks that stay empty in the last wave, of those in all its waves
    stall | | what warps waited for most, in the first launch of the kernel, grid and block
    stall_share | of 1 | of the time in which warps waited
    second_stall | | what they waited for next
    second_stall_share | of 1 | of the time in which warps waited
    verdict | | {VERDICTS}
    because | | the figures by which that rule speaks
"""),
    ),
    "counter_ranges": Described(
        "One row per run with the stage counters, step, phase, range and class: sums over its kernels",
        columns(f"""{WHERE}
    class | | kind of work
    launches | | kernels
    total_ns | ns | sum of their durations in the capture
    counted_ns | ns | of those that have counters
{OF_FLOPS}{OF_BYTES}
"""),
    ),
    "roofs": Described(
        "One row per run with the stage counters and roof: the most that the GPU can do",
        columns("""
    roof | | memory, or the kind of FLOPs: fp32 on ordinary cores; tf32, bf16 and fp16 on tensor cores
    unit | | of both rates
    data_sheet_per_s | | rate by the maker's data sheet; empty where it is not known to this project
    reached_per_s | | rate that a copy, or a matrix multiply of 8192³, reached on this GPU; empty where there is none
"""),
    ),
}
