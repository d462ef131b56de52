"""Hardware counters of Nsight Compute (ncu), joined to the launches of a capture: why a kernel is slow.

Launches are joined on full name, grid and block. Matrix multiplies with the same name, grid and block may have
different depths (the K of M, N, K), which no profiler records; their times differ. So a launch of them, or of
attention, is joined with the counted one whose time is nearest, or with none if no time is near. Launches of other
kernels are joined with the first that was counted.
"""

import io
import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from kernel_tables.classes import family
from kernel_tables.errors import TraceError

FLOP_KINDS = ("fp32", "tf32", "bf16", "fp16")  # fp32 on ordinary cores, the others on tensor cores
CONFIGURATION = ["kernel", "grid", "block"]
NO_COUNTED_ROW = -1
# The metrics that are kept, by what they tell and by label. FLOPs are arithmetic instructions, counted once for each
# thread that executed them (an FMA is two operations); of tensor cores, operations by the type of their operands.
# Limits are the most blocks that fit on a multiprocessor, stalls are waiting warps per issued instruction.
GROUPS = {
    "instructions": {
        name: f"smsp__sass_thread_inst_executed_op_{name}_pred_on.sum" for name in ("fadd", "fmul", "ffma")
    },
    "tensor operations": {
        "tf32": "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
        "bf16": "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
        "fp16": "sm__ops_path_tensor_src_fp16.sum",
    },
    "time": {"ns": "gpu__time_duration.sum"},
    "bytes": {"dram_read": "dram__bytes_read.sum", "dram_write": "dram__bytes_write.sum", "l2": "lts__t_bytes.sum"},
    "occupancy": {
        "reached": "sm__warps_active.avg.pct_of_peak_sustained_active",
        "possible": "sm__maximum_warps_per_active_cycle_pct",
    },
    "registers": {"per thread": "launch__registers_per_thread"},
    "multiprocessors": {"count": "launch__sm_count"},
    "limits": {
        "registers": "launch__occupancy_limit_registers",
        "shared memory": "launch__occupancy_limit_shared_mem",
        "block size": "launch__occupancy_limit_warps",
        "blocks per multiprocessor": "launch__occupancy_limit_blocks",
    },
    "stalls": {
        reason: f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"
        for name, reason in {
            "barrier": "barrier of the block", "branch_resolving": "branch", "dispatch_stall": "dispatcher",
            "drain": "writes at the end", "gmma": "tensor cores (asynchronous)", "imc_miss": "constant memory",
            "lg_throttle": "queue of memory instructions", "long_scoreboard": "data from L2 or DRAM",
            "math_pipe_throttle": "arithmetic units", "membar": "memory fence",
            "mio_throttle": "queue of shared memory",
            "misc": "other", "no_instruction": "instruction fetch", "short_scoreboard": "data from shared memory",
            "sleeping": "sleeping", "tex_throttle": "texture queue", "wait": "fixed latency of an instruction",
        }.items()
    },
}  # fmt: skip
METRICS = tuple(metric for metrics in GROUPS.values() for metric in metrics.values())
BASE_UNITS = ("inst", "op", "ns", "nsecond", "byte", "%", "register/thread", "SM", "block", "warp", "")
# Instructions of tensor cores on floating-point numbers (fp8 too, but not fp64), and those of them that multiply no
# matrices: compilers load constants by HFMA2.MMA, so even elementwise kernels execute some. A kernel that executes only
# the latter does no operations on tensor cores. The names are those on Hopper, seen only on an H200.
OPERATION_INDICATORS = (
    "sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor_op_hmma_type_hfma2.sum",
)  # fmt: skip


def read_counters(path: Path) -> pd.DataFrame:
    """What ncu printed (--csv --page raw), one row per counted launch: kernel, grid and block ("16x6x8"), and every
    metric of METRICS and OPERATION_INDICATORS, NaN if it was not requested or the GPU has none; not the names of host,
    program and process. Raises TraceError if the file is no such table, is cut short, or has other units."""
    headings = ["Kernel Name", "Grid Size", "Block Size"]
    with Path(path).open(encoding="utf-8", errors="replace", newline="") as file:
        text = "".join(line for line in file if line.startswith('"'))  # its messages begin with ==
    try:
        printed = pd.read_csv(io.StringIO(text), dtype=str, keep_default_na=False)
    except (pd.errors.EmptyDataError, pd.errors.ParserError):
        printed = pd.DataFrame()
    if printed.empty or not set(headings) <= set(printed.columns) or printed.isna().any(axis=None):
        fact = "no table of Nsight Compute, or it is cut short"
        raise TraceError(f"{path}: {fact}; make it with --csv --page raw --print-units base")
    units, launches = printed.iloc[0], printed.iloc[1:].reset_index(drop=True)
    table = launches[headings].set_axis(CONFIGURATION, axis=1)
    for name in ("grid", "block"):
        table[name] = table[name].str.strip("() ").str.replace(r"\s*,\s*", "x", regex=True)
    metrics = [*METRICS, *OPERATION_INDICATORS]
    texts = launches.reindex(columns=metrics, fill_value="").replace(",", "", regex=True)
    try:
        numbers = texts.replace(r"(?i)^\s*(n/a|-?nan|inf|)\s*$", "nan", regex=True).astype("float64")
    except ValueError as error:
        raise TraceError(f"{path}: {error}; is the file complete?") from None
    for metric in metrics:
        if units.get(metric, "") not in BASE_UNITS and numbers[metric].notna().any():
            raise TraceError(f"{path}: {metric} is in {units[metric]!r}; use --print-units base")
    return table.join(numbers)


def without_uncounted(counters: pd.DataFrame) -> pd.DataFrame:
    """The launches whose operations on tensor cores are known, in order, with the metrics of METRICS.

    Operations that were not counted are 0 if the kernel executed no instructions that multiply matrices there, or on a
    GPU that does not count these instructions; else the launch is left out. So is a launch that executed such
    instructions without a counted operation, as in fp8."""
    operations, (tensor, others) = list(GROUPS["tensor operations"].values()), OPERATION_INDICATORS
    executed = counters[tensor] - counters[others].fillna(0.0)
    multiplies = executed.groupby([counters[name] for name in CONFIGURATION]).transform("max").gt(0)
    is_left_out = multiplies & counters[operations].sum(axis=1).eq(0)
    known_operations = [name for name in operations if counters[name].notna().any()]  # not NaN: this GPU counts them
    is_counted = counters[operations].notna().any(axis=1)
    table = counters.assign(**counters[known_operations].mask(~is_counted, 0.0))
    return table.loc[~is_left_out, [*CONFIGURATION, *METRICS]].reset_index(drop=True)


def join_counters(launches: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """The launches (kernel, class, grid, block, duration_ns) with `counted_as`, their row of `counters` or
    NO_COUNTED_ROW, and `not_counted`: why there is none, or ""."""
    # In templates, nsys writes the types of numbers, `<(int)4, (bool)1>`. ncu omits them, and some namespaces.
    number_type = re.compile(r"\([A-Za-z_][\w:<> ]*\)(?=-?\d)")
    namespace = re.compile(r"(?:[A-Za-z_]\w*|<unnamed>|\(anonymous namespace\))::")

    def keys_of(table: pd.DataFrame) -> pd.Series:
        """By row, one text for the name in a spelling that both tools share, grid and block."""
        names = table["kernel"].unique()
        spelling = {name: namespace.sub("", number_type.sub("", name)).replace(" ", "") for name in names}
        return table["kernel"].map(spelling).astype("str") + "\n" + table["grid"] + "\n" + table["block"]

    keys = keys_of(launches)
    counted_rows = counters.groupby(keys_of(counters).to_numpy(object)).indices
    counted_as = np.full(len(launches), NO_COUNTED_ROW)
    reasons = np.full(len(launches), "not profiled, or its operations on tensor cores were not counted", dtype=object)
    for key, rows in launches.groupby(keys.to_numpy(object)).indices.items():
        if key in counted_rows:
            of_key = counters.iloc[counted_rows[key]]
            has_depths = family(launches["class"].iloc[rows[0]]) in ("gemm", "attention")  # all are of one class
            durations_ns = launches["duration_ns"].to_numpy()[rows]
            nearest = _nearest_rows(durations_ns, of_key) if has_depths else of_key.index[0]
            other_depth = "another depth than was counted, by its time"
            counted_as[rows], reasons[rows] = nearest, np.where(nearest == NO_COUNTED_ROW, other_depth, "")
    return launches.assign(counted_as=counted_as, not_counted=pd.Series(reasons, launches.index, dtype="str"))


def _nearest_rows(duration_ns: np.ndarray, rows: pd.DataFrame) -> np.ndarray:
    """By launch, the counted row whose time is nearest, NO_COUNTED_ROW if none took about as long. Of rows that did the
    same work, that is, whose FLOPs differ by at most a percent, only the first counts."""
    least, most = 0.8, 2.5  # counted ÷ captured time: a kernel takes longer while counted, since caches are emptied
    distinct: list[int] = []
    flops = _flops_in(work_of(rows)).fillna(0.0).to_numpy()
    for row, count in enumerate(flops):
        if (np.abs(count - flops[distinct]) > 0.01 * np.maximum(count, flops[distinct])).all():
            distinct.append(row)
    counted_ns = rows[GROUPS["time"]["ns"]].iloc[distinct]
    with np.errstate(divide="ignore"):
        ratio = counted_ns.to_numpy()[None, :] / np.maximum(duration_ns, 1)[:, None]
        nearest = np.abs(np.log(ratio)).argmin(axis=1)
    ratio = np.take_along_axis(ratio, nearest[:, None], axis=1)[:, 0]
    return np.where((ratio >= least) & (ratio <= most), counted_ns.index.to_numpy()[nearest], NO_COUNTED_ROW)


def configurations(joined: pd.DataFrame) -> pd.DataFrame:
    """One row per configuration, class, counted_as and not_counted of joined launches, longest total time first; with
    launches, total_ns, min_ns and max_ns."""
    keys = [*CONFIGURATION, "class", "counted_as", "not_counted"]
    grouped = joined.groupby(keys, sort=False, observed=True)["duration_ns"]
    table = grouped.agg(launches="count", total_ns="sum", min_ns="min", max_ns="max").reset_index()
    order = ["total_ns", *CONFIGURATION, "counted_as"]
    return table.sort_values(order, ascending=[False, *[True] * 4], ignore_index=True)


def launch_facts(grid: pd.Series, metrics: pd.DataFrame) -> pd.DataFrame:
    """One row per launch, given by its grid ("16x6x8") and metrics.

    Columns: occupancy and occupancy_possible (both from 0 to 1), limited_by (the resource that allows the fewest
    blocks; "" if nothing limits it), waves, stall (what warps wait for most; "" if for nothing)."""
    full = 99.5  # percent of the warps that fit on a multiprocessor: from here on, nothing limits it
    possible = metrics[GROUPS["occupancy"]["possible"]]
    limits, stalls = (
        metrics[list(GROUPS[name].values())].set_axis(list(GROUPS[name]), axis=1) for name in ("limits", "stalls")
    )
    fewest = limits.min(axis=1)
    limited_by = [" and ".join(limits.columns[mask]) for mask in limits.eq(fewest, axis=0).to_numpy()]
    blocks = grid.map(lambda size: math.prod(map(int, size.split("x"))) if size else math.nan).astype("float64")
    stall = stalls.fillna(0.0).idxmax(axis=1).astype("str")
    return pd.DataFrame(
        {
            "occupancy": metrics[GROUPS["occupancy"]["reached"]] / 100,
            "occupancy_possible": possible / 100,
            "limited_by": pd.Series(limited_by, metrics.index, dtype="str").where(possible < full, ""),
            "waves": blocks / (metrics[GROUPS["multiprocessors"]["count"]] * fewest),
            "stall": stall.where(stalls.max(axis=1) > 0, ""),
        }
    )


def work_of(metrics: pd.DataFrame) -> pd.DataFrame:
    """The work of the launch of each row, which adds up over launches: fp32_flops, tf32_flops, bf16_flops, fp16_flops,
    dram_bytes, l2_bytes. Operations of tensor cores that are NaN in all rows are 0: this GPU has no counter for them.
    """
    adds, multiplies, fmas = (metrics[name] for name in GROUPS["instructions"].values())
    table = {"fp32_flops": adds + multiplies + 2 * fmas}
    is_counted = table["fp32_flops"].notna()
    for kind, metric in GROUPS["tensor operations"].items():
        operations = metrics[metric]
        table[f"{kind}_flops"] = operations.mask(is_counted, 0.0) if operations.isna().all() else operations
    read, write, l2 = (metrics[name] for name in GROUPS["bytes"].values())
    return pd.DataFrame(table | {"dram_bytes": read + write, "l2_bytes": l2})


def _flops_in(work: pd.DataFrame) -> pd.Series:
    """The FLOPs of every row of `work`, NaN if one kind is unknown."""
    return sum(work[f"{kind}_flops"] for kind in FLOP_KINDS)


def rates_of(
    work: pd.DataFrame, seconds: pd.Series, peak_flop_per_s: Mapping[str, float], peak_bytes_per_s: float
) -> pd.DataFrame:
    """The rates of every row of `work` (see work_of), NaN if unknown; the peaks are those of the GPU, by kind of FLOPs,
    and of its memory.

    Columns: flops, flop_per_s, dram_bytes_per_s, flops_per_byte; compute_share: the time of its FLOPs at the peaks of
    their kinds ÷ its time; memory_share: the same for its bytes."""
    flops = _flops_in(work)
    seconds = seconds.astype("float64").where(seconds > 0)
    by_kind = {kind: work[f"{kind}_flops"] for kind in FLOP_KINDS}
    # in seconds; those of no FLOPs are 0, even if the peak is unknown
    at_peaks = sum((one / peak_flop_per_s[kind]).where(one != 0, 0.0) for kind, one in by_kind.items())
    return pd.DataFrame(
        {
            "flops": flops,
            "flop_per_s": flops / seconds,
            "dram_bytes_per_s": work["dram_bytes"] / seconds,
            "flops_per_byte": flops / work["dram_bytes"].where(work["dram_bytes"] > 0),
            "compute_share": at_peaks / seconds,
            "memory_share": work["dram_bytes"] / peak_bytes_per_s / seconds,
        }
    )


def verdicts_of(table: pd.DataFrame) -> pd.Series:
    """The `verdict` on every row. The table has the shares of the roofs that `rates_of` returns, the waves of
    `launch_facts`, and `not_counted`.

    "memory": the kernel reaches at least 60 % of the DRAM roof, and at least as large a share of it as of the roof of
    its FLOPs. "compute": it reaches 60 % of the latter. "too small": neither, and its blocks do not fill the GPU once.
    "latency": none of these: the GPU is full, and warps wait. ncu ("Speed Of Light", SmallGrid) draws the same lines.
    """
    memory, compute, near_roof = table["memory_share"], table["compute_share"], 0.6
    verdicts = {  # the first that applies
        "not counted": (table["not_counted"] != "") | memory.isna() | compute.isna(),
        "memory": (memory >= near_roof) & (memory >= compute),
        "compute": compute >= near_roof,
        "too small": table["waves"] < 1,
    }
    found = np.select(list(verdicts.values()), list(verdicts), "latency")
    return pd.Series(found, table.index, dtype="str", name="verdict")
