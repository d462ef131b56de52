"""The tables of the counters of one run, and whether they are complete."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kernel_recorder.gpu import NSYS
from kernel_tables.counters.metrics import KINDS
from kernel_tables.counters.reading import kept_counters
from kernel_tables.counters.work import Roofs
from kernel_tables.errors import TraceError
from kernel_tables.trace import Trace
from profile_grid.gpu_peaks import peaks_of
from profile_grid.quantities import counted as number
from profile_grid.results.capture_identity import difference
from profile_grid.results.results import COMPLETE, INCOMPLETE, UNSUPPORTED, StageResult, read_result
from profile_grid.results.run_tables import RunTables, tables_status
from profile_grid.stages.counters import counter_tables as tables
from profile_grid.stages.counters.counter_tables import TABLES as TABLES
from profile_grid.study.stages import CAPTURE, COUNTERS
from profile_grid.tables.findings import findings_of_counters, findings_table

(TABLE,) = COUNTERS.files
(SQLITE,) = CAPTURE.files
MAX_LOST_SHARE = 0.01  # of the time of kernels
OTHER_PROFILER = (
    "counters are joined to a capture of Nsight Systems, and this run's is of PyTorch's profiler; set"
    " capture.backend to nsys in config.yaml"
)


def run_tables(result: StageResult, folder: Path, extra_rules: Sequence[dict] = ()) -> RunTables:
    """The status of a run's counters and their tables; no tables unless nearly all of its time has counters."""
    if status := _status_without_tables(result, folder):
        return RunTables(status, {})
    try:
        with Trace(folder / SQLITE, extra_rules) as trace:
            counted = kept_counters(folder / TABLE)
            status, made_tables = tables_of_launches(tables.measured_launches(trace), counted, result)
            if status["status"] == COMPLETE:
                made_tables["counter_findings"] = findings_of_counters(trace, counted)
            return RunTables(status, made_tables)
    except TraceError as error:
        return RunTables(tables_status(INCOMPLETE, str(error)), {})


def _status_without_tables(result: StageResult, folder: Path) -> dict | None:
    """The status if counters cannot be joined to the capture of the run; None if they can."""
    if result.status != COMPLETE:
        return tables_status(result.status, result.reason)
    capture = read_result(folder / CAPTURE.result)
    if reason := difference(result, folder / TABLE) or difference(capture, folder / SQLITE):
        return tables_status(INCOMPLETE, f"{reason}: it belongs to another run")
    if capture.status != COMPLETE:
        reason = f"its capture is {capture.status}" if capture.reason else None  # which the status of the capture has
        return tables_status(capture.status, reason)
    return None if capture.facts["backend"] == NSYS else tables_status(UNSUPPORTED, OTHER_PROFILER)


def tables_of_launches(launches: pd.DataFrame, counted: pd.DataFrame, result: StageResult) -> RunTables:
    """`run_tables` for launches and counters that are already read."""
    reached, sheet = roofs_reached(result.facts["roofs"]), roofs_of_sheet(result.program.machine.device_name)
    launches = tables.joined_launches(launches, counted)
    counters = tables.counters_table(launches, counted, reached)
    if tables.lost_share(counters) > MAX_LOST_SHARE:
        return RunTables(tables_status(INCOMPLETE, _loss_in_words(counters)), {})
    complete_tables = {
        "counters": counters,
        "counter_ranges": tables.ranges_table(launches, counted),
        "roofs": tables.roofs_table(reached, sheet),
        "counter_findings": findings_table([]),
    }
    return RunTables(tables_status(COMPLETE, warnings=_notes(counters)), complete_tables)


def roofs_reached(rates: dict[str, float | None]) -> Roofs:
    """The roofs of a calibration."""
    return Roofs(rates["memory"], {kind: rates[kind] for kind in KINDS})


def roofs_of_sheet(device_name: str | None) -> Roofs:
    """The roofs of the data sheet; fp16 multiplies as fast as bf16 on every GPU with both."""
    peaks = peaks_of(device_name)
    if peaks is None:
        return Roofs(None, dict.fromkeys(KINDS))
    return Roofs(
        peaks.memory_bytes_per_s,
        {
            "fp32": peaks.fp32_flop_per_s,
            "tf32": peaks.tf32_flop_per_s,
            "bf16": peaks.bf16_flop_per_s,
            "fp16": peaks.bf16_flop_per_s,
        },
    )


def _loss_in_words(counters: pd.DataFrame) -> str:
    """The number of configurations without counters, their time, and the longest of them."""
    lost = counters[~counters["not_counted"].isin(("", tables.LEFT_OUT))]
    longest, share = lost.iloc[0], f"{100 * tables.lost_share(counters):.1f} % of the kernels' time"
    return (
        f"{len(lost)} of {len(counters)} kernel configurations have no counters, {share}, and at most"
        f" {100 * MAX_LOST_SHARE:g} % may lack them; the longest is {longest['kernel']}, grid {longest['grid']}, block"
        f" {longest['block']}:"
        f" {longest['not_counted']}; count again in the environment of the capture, and more layers if they differ"
        " (counters: {layers: 100})"
    )


def _notes(counters: pd.DataFrame) -> list[str]:
    """Notes for the reader about nearly complete counters."""
    lost = counters[~counters["not_counted"].isin(("", tables.LEFT_OUT))]
    share = f"{100 * tables.lost_share(counters):.2g} % of the time"
    return [f"{number(len(lost), 'kernel configuration')} without counters ({share})"] if len(lost) else []
