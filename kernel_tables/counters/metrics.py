"""The metrics of Nsight Compute that are read: names and units.

FLOPs are arithmetic instructions, counted once for each thread that executed them (an FMA is two operations); of tensor
cores, they are operations, counted by the type of their operands. Occupancy, waves and limits are those of a launch.
"""

from dataclasses import dataclass

FLOP_KINDS = ("fp32", "tf32", "bf16", "fp16")  # fp32 on ordinary cores, the others on tensor cores
INSTRUCTIONS = {name: f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("fadd", "fmul", "ffma")}
TENSOR_OPERATIONS = {
    "tf32": "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "bf16": "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "fp16": "sm__ops_path_tensor_src_fp16.sum",
}
# Instructions of tensor cores on floating-point numbers (fp8 too, but not fp64), and those of them that multiply no
# matrices: compilers load constants by HFMA2.MMA, so even elementwise kernels execute some. A kernel that executes only
# the latter does no operations on tensor cores. The names are those on Hopper, seen only on an H200.
TENSOR_INSTRUCTIONS = "sm__inst_executed_pipe_tensor_op_hmma.sum"
NON_MATRIX_INSTRUCTIONS = "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum"
TIME_NS = "gpu__time_duration.sum"
DRAM_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
L2_BYTES = "lts__t_bytes.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
OCCUPANCY_POSSIBLE = "sm__maximum_warps_per_active_cycle_pct"
REGISTERS = "launch__registers_per_thread"
MULTIPROCESSORS = "launch__sm_count"
LIMITS = {  # the most blocks that fit on a multiprocessor, by the resource that limits them
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "block size": "launch__occupancy_limit_warps",
    "blocks per multiprocessor": "launch__occupancy_limit_blocks",
}
STALLED_BY = {  # why warps wait; a warp that is ready but not selected does not wait
    "barrier": "barrier of the block",
    "branch_resolving": "branch",
    "dispatch_stall": "dispatcher",
    "drain": "writes at the end",
    "gmma": "tensor cores (asynchronous)",
    "imc_miss": "constant memory",
    "lg_throttle": "queue of memory instructions",
    "long_scoreboard": "data from L2 or DRAM",
    "math_pipe_throttle": "arithmetic units",
    "membar": "memory fence",
    "mio_throttle": "queue of shared memory",
    "misc": "other",
    "no_instruction": "instruction fetch",
    "short_scoreboard": "data from shared memory",
    "sleeping": "sleeping",
    "tex_throttle": "texture queue",
    "wait": "fixed latency of an instruction",
}
# By reason, the metric: waiting warps per issued instruction.
STALLS = {name: f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio" for name in STALLED_BY}


@dataclass(frozen=True)
class Metric:
    """A metric by its name in Nsight Compute, and the units in which it may be printed (--print-units base)."""

    name: str
    units: tuple[str, ...]


def _metrics(names, *units: str) -> tuple[Metric, ...]:
    return tuple(Metric(name, units) for name in names)


# These show for which kernels operations have to be counted, and are not kept.
OPERATION_INDICATORS = _metrics((TENSOR_INSTRUCTIONS, NON_MATRIX_INSTRUCTIONS), "inst", "")
METRICS = (
    *_metrics(INSTRUCTIONS.values(), "inst", ""),
    *_metrics(TENSOR_OPERATIONS.values(), "op", "inst", ""),
    *_metrics((TIME_NS,), "ns", "nsecond"),
    *_metrics((*DRAM_BYTES, L2_BYTES), "byte"),
    *_metrics((OCCUPANCY, OCCUPANCY_POSSIBLE), "%"),
    *_metrics((REGISTERS,), "register/thread", ""),
    *_metrics((MULTIPROCESSORS,), "SM", ""),
    *_metrics(LIMITS.values(), "block", ""),
    *_metrics(STALLS.values(), "inst", "warp", ""),
)
