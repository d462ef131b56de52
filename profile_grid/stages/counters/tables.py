"""The tables of the counters of one run, and whether they are complete."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kernel_recorder.nsys_profile import NSYS
from kernel_tables.counters.joining import (
    NO_COUNTED_ROW,
    RULES,
    configurations,
    join_counters,
    launch_facts,
    verdicts_of,
)
from kernel_tables.counters.metrics import FLOP_KINDS
from kernel_tables.counters.reading import CONFIGURATION, read_kept_counters
from kernel_tables.counters.work import WORK_COLUMNS, Roofs, rates_of, work_of
from kernel_tables.diagnosis.diagnose import diagnose
from kernel_tables.diagnosis.rules import COUNTER_RULES
from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace
from profile_grid.gpu_peaks import Peaks, peaks_of
from profile_grid.quantities import counted
from profile_grid.results.capture_identity import identity_difference
from profile_grid.results.results import COMPLETE, INCOMPLETE, UNSUPPORTED, StageResult, read_result
from profile_grid.results.run_tables import RunTables, tables_status
from profile_grid.stages.capture.step_tables import measured_activities
from profile_grid.study.stages import CAPTURE, COUNTERS
from profile_grid.study.table_spec import RANGE_COLUMNS, TableSpec, columns
from profile_grid.tables import classes, conservation, findings, names

(COUNTERS_CSV,), (SQLITE,) = COUNTERS.files, CAPTURE.files
MAX_LOST_SHARE = 0.01  # of the time of kernels, without counters
OTHER_PROFILER = (
    "counters are joined to a capture of Nsight Systems, and this run's is of PyTorch's profiler; set"
    " capture.backend to nsys in config.yaml"
)
COMMUNICATION = "communication"  # a family of kernel classes
LEFT_OUT = "left out: communication"  # a value of the column not_counted, which has the reasons; "" if counted
LAUNCH_COLUMNS = ["kernel", "class", "grid", "block", "launches", "total_ns", "min_ns", "max_ns", "not_counted"]
KEY_COLUMNS = ["step", "phase", "range", "class"]  # of the table counter_ranges


def run_tables(result: StageResult, folder: Path, extra_rules: Sequence[dict] = ()) -> RunTables:
    """The status of a run's counters, and their tables; no tables unless counters cover nearly all time of kernels."""
    if status := _status_without_tables(result, folder):
        return RunTables(status, {})
    try:
        with Trace(folder / SQLITE, extra_rules) as trace:
            counters = read_kept_counters(folder / COUNTERS_CSV)
            status, tables = tables_of_launches(measured_launches(trace), counters, result)
            if status["status"] == COMPLETE:
                found = diagnose(trace, names.STEP, counters=counters, rules=COUNTER_RULES)
                tables["counter_findings"] = findings.findings_table(found)
            return RunTables(status, tables)
    except TraceError as error:
        return RunTables(tables_status(INCOMPLETE, str(error)), {})


def _status_without_tables(result: StageResult, folder: Path) -> dict | None:
    """The status of a run without counters, or without a capture to which they can be joined; None if it has both."""
    if result.status != COMPLETE:
        return tables_status(result.status, result.reason)
    capture = read_result(folder / CAPTURE.result_file)
    if reason := identity_difference(result, folder / COUNTERS_CSV) or identity_difference(capture, folder / SQLITE):
        return tables_status(INCOMPLETE, f"{reason}: it belongs to another run")
    if capture.status != COMPLETE:
        # the capture's own reason is not repeated, since the status file of the stage capture has it
        reason = f"its capture is {capture.status}" if capture.reason else None
        return tables_status(capture.status, reason)
    return None if capture.facts["backend"] == NSYS else tables_status(UNSUPPORTED, OTHER_PROFILER)


def tables_of_launches(launches: pd.DataFrame, counters: pd.DataFrame, result: StageResult) -> RunTables:
    """`run_tables` for launches and counters that are already read; the table of findings is still empty."""
    rates = result.facts["roofs"]  # per second, by roof: "memory", or a kind of FLOPs
    reached = Roofs(rates["memory"], {kind: rates[kind] for kind in FLOP_KINDS})
    launches = joined_launches(launches, counters)
    table = counters_table(launches, counters, reached)
    if lost_share(table) > MAX_LOST_SHARE:
        return RunTables(tables_status(INCOMPLETE, _loss_in_words(table)), {})
    tables = {
        "counters": table,
        "counter_ranges": ranges_table(launches, counters),
        "roofs": roofs_table(reached, peaks_of(result.program.machine.device_name)),
        "counter_findings": findings.findings_table([]),
    }
    return RunTables(tables_status(COMPLETE, warnings=_loss_warnings(table)), tables)


def measured_launches(trace: Trace) -> pd.DataFrame:
    """One row per launch of a kernel in the measured steps: kernel, class, grid, block, step, phase, range,
    duration_ns."""
    is_measured = trace.enclosing(names.MEASURE) >= 0
    grid, block = trace.launch_sizes
    launches = measured_activities(trace).rename(columns={"name": "kernel"})
    launches = launches.assign(grid=grid[is_measured], block=block[is_measured])
    launches = launches[(launches["step"] >= 0) & ~launches["kind"].isin(classes.MEMORY_OPERATIONS)]
    return launches[[*CONFIGURATION, *KEY_COLUMNS, "duration_ns"]].astype({"kernel": "str", "class": "str"})


def joined_launches(launches: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """All launches, with the column `counted_as`, the number of their row in the counters. Where that is
    NO_COUNTED_ROW, the column `not_counted` has the reason. Communication never has a row."""
    matched = join_counters(launches, counters)
    is_left_out = matched["class"].map(classes.family) == COMMUNICATION
    counted_as = matched["counted_as"].mask(is_left_out, NO_COUNTED_ROW)
    return matched.assign(counted_as=counted_as, not_counted=matched["not_counted"].mask(is_left_out, LEFT_OUT))


def counters_table(launches: pd.DataFrame, counters: pd.DataFrame, roofs: Roofs) -> pd.DataFrame:
    """One row per configuration (kernel, grid, block) of joined launches, most time first: its launches in all measured
    steps, the work of one, and its verdict. Raises NotConserved if a launch or a nanosecond is lost."""
    table = configurations(launches)
    conservation.require_same("nanoseconds", table["total_ns"].sum(), launches["duration_ns"].sum())
    conservation.require_same("launches", table["launches"].sum(), len(launches))
    metrics = _metrics_at(counters, table["counted_as"])
    work = work_of(metrics)
    rates = rates_of(work, table["total_ns"] / table["launches"] / 1e9, roofs)
    table = pd.concat([table[LAUNCH_COLUMNS], work, rates, launch_facts(table["grid"], metrics)], axis=1)
    return table.join(verdicts_of(table))[COUNTERS_TABLE.names]


def ranges_table(launches: pd.DataFrame, counters: pd.DataFrame) -> pd.DataFrame:
    """One row per step, phase, range and class of joined launches: their number and time, the time of those with
    counters, and the sums of counted work. A sum is NaN if a term of it is unknown."""
    has_counters = launches["counted_as"] != NO_COUNTED_ROW
    # work is 0 without counters, so that NaN remains only where a counted launch lacks a metric
    work = work_of(_metrics_at(counters, launches["counted_as"])).mask(~has_counters, 0.0)
    rows = launches.assign(counted_ns=launches["duration_ns"].where(has_counters, 0), **work)
    grouped = rows.groupby(KEY_COLUMNS, sort=True, observed=True)
    sums = grouped[["duration_ns", "counted_ns"]].sum().rename(columns={"duration_ns": "total_ns"})
    sums = sums.join(known_sums(rows, KEY_COLUMNS, WORK_COLUMNS))
    table = sums.assign(launches=grouped.size()).reset_index()[COUNTER_RANGES.names]
    conservation.require_same("nanoseconds", table["total_ns"].sum(), launches["duration_ns"].sum())
    conservation.require_same("launches", table["launches"].sum(), len(launches))
    return table


def _metrics_at(counters: pd.DataFrame, row_numbers: pd.Series) -> pd.DataFrame:
    """The metrics in the rows of the counters with these numbers; NaN for NO_COUNTED_ROW."""
    metrics = counters.drop(columns=CONFIGURATION).reset_index(drop=True)
    return metrics.reindex(row_numbers).set_axis(row_numbers.index)


def lost_share(counters: pd.DataFrame) -> float:
    """The share without counters, from 0 to 1, of the time of all kernels except communication."""
    countable = counters[counters["not_counted"] != LEFT_OUT]
    total = countable["total_ns"].sum()
    return float(countable.loc[countable["not_counted"] != "", "total_ns"].sum() / total) if total else 0.0


def roofs_table(reached: Roofs, peaks: Peaks | None) -> pd.DataFrame:
    """One row per roof, memory first: its rates by the data sheet and by the calibration, NaN if unknown."""
    rows = [("memory", "B/s", peaks and peaks.memory_bytes_per_s, reached.memory_bytes_per_s)]
    rows += [(kind, "FLOP/s", peaks and peaks.flop_per_s(kind), rate) for kind, rate in reached.flop_per_s.items()]
    return ROOFS.table(rows, of_a_run=True)


def _loss_in_words(counters: pd.DataFrame) -> str:
    """Why the counters are incomplete: the configurations without counters, their time, the longest, and what to do."""
    lost = counters[~counters["not_counted"].isin(("", LEFT_OUT))]
    longest, share = lost.iloc[0], f"{100 * lost_share(counters):.1f} % of the kernels' time"
    return (
        f"{len(lost)} of {len(counters)} kernel configurations have no counters, {share}, and at most"
        f" {100 * MAX_LOST_SHARE:g} % may lack them; the longest is {longest['kernel']}, grid {longest['grid']}, block"
        f" {longest['block']}: {longest['not_counted']}; count again in the environment of the capture, and more layers"
        " if they differ (counters: {layers: 100})"
    )


def _loss_warnings(counters: pd.DataFrame) -> list[str]:
    """A warning if counters are only nearly complete."""
    lost = counters[~counters["not_counted"].isin(("", LEFT_OUT))]
    share = f"{100 * lost_share(counters):.2g} % of the time"
    return [f"{counted(len(lost), 'kernel configuration')} without counters ({share})"] if len(lost) else []


def known_sums(rows: pd.DataFrame, by: Sequence[str], quantities: Sequence[str], sort: bool = True) -> pd.DataFrame:
    """The sums of the columns `quantities` in groups by the columns `by`; NaN if a term is NaN, which pandas skips."""
    keys, terms = [rows[name] for name in by], rows[list(quantities)]
    sums = terms.groupby(keys, sort=sort, observed=True).sum()
    return sums.mask(terms.isna().groupby(keys, sort=sort, observed=True).any())


FLOP_COLUMNS = columns("""
    fp32_flops | float | FLOP | additions and multiplications in fp32 on ordinary cores, an FMA as two, by counters
    tf32_flops | float | FLOP | operations of tensor cores on tf32, by counters
    bf16_flops | float | FLOP | operations of tensor cores on bf16, by counters
    fp16_flops | float | FLOP | operations of tensor cores on fp16, by counters
""")
BYTE_COLUMNS = columns("""
    dram_bytes | float | B | read from and written to the GPU's memory, with empty caches
    l2_bytes | float | B | through the L2 cache
""")
RATE_COLUMNS = columns("""
    flops | float | FLOP | of all kinds
    flop_per_s | float | FLOP/s | flops ÷ time in the capture
    dram_bytes_per_s | float | B/s | dram_bytes ÷ time in the capture; above the roof if caches held the data
    flops_per_byte | float | FLOP/B | flops ÷ dram_bytes: the arithmetic intensity
    compute_share | float | of 1 | time of its FLOPs at the calibrated roofs of their kinds ÷ its time
    memory_share | float | of 1 | time of its DRAM bytes at the calibrated memory roof ÷ its time
""")
VERDICTS = "; ".join(f"{verdict}: {rule}" for verdict, rule in RULES.items())
COUNTER_FINDINGS = TableSpec(
    "counter_findings",
    "One row per run with the stage counters and finding of the rules of the diagnosis that need counters",
    findings.FINDINGS.columns,
)
COUNTERS_TABLE = TableSpec(
    "counters",
    "One row per run with the stage counters and kernel configuration; counters are of one launch",
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
    not_counted | text | | why it has no counters; empty if it has
""",
        FLOP_COLUMNS,
        BYTE_COLUMNS,
        RATE_COLUMNS,
        f"""
    occupancy | float | of 1 | active warps, of those that a multiprocessor can hold
    occupancy_possible | float | of 1 | the maximum by registers, shared memory and blocks
    limited_by | text | | what limits it; empty if nothing does
    registers | float | | per thread
    waves | float | | how often its blocks fill the GPU
    tail | float | of 1 | share of all block slots that stays empty in the last wave
    stall | text | | what warps waited for most, in the first launch of the kernel, grid and block
    stall_share | float | of 1 | of the time in which warps waited
    second_stall | text | | what they waited for next
    second_stall_share | float | of 1 | of the time in which warps waited
    verdict | text | | {VERDICTS}
    because | text | | the numbers for that verdict
""",
    ),
)
COUNTER_RANGES = TableSpec(
    "counter_ranges",
    "One row per run with the stage counters, step, phase, range and class: sums over its kernels",
    columns(
        RANGE_COLUMNS,
        """
    class | text | | kind of work
    launches | int | | kernels
    total_ns | int | ns | sum of their durations in the capture
    counted_ns | int | ns | of those that have counters
""",
        FLOP_COLUMNS,
        BYTE_COLUMNS,
    ),
)
ROOFS = TableSpec(
    "roofs",
    "One row per run with the stage counters and roof: the highest rate of the GPU",
    columns("""
    roof | text | | memory, or the kind of FLOPs: fp32 on ordinary cores; tf32, bf16 and fp16 on tensor cores
    unit | text | | of both rates
    data_sheet_per_s | float | | rate by the maker's data sheet; empty if this project does not know it
    reached_per_s | float | | rate of a copy, or of a matrix multiply of 8192³, on this GPU; empty if there is none
"""),
)
TABLES = (COUNTER_FINDINGS, COUNTERS_TABLE, COUNTER_RANGES, ROOFS)
