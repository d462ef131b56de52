"""The tables of one run from the captures of all its ranks, and the summaries that Nsight Systems itself makes."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pandas as pd

from cs336_model.ranges import BLOCK
from kernel_tables.errors import ERROR, TraceError
from kernel_tables.ranks import collectives, communication
from kernel_tables.ranks.ranks import RankTrace
from kernel_tables.reading import nsys
from kernel_tables.trace import Trace
from profile_grid.host.processes.job import combined_problem
from profile_grid.results.capture_identity import identity_difference
from profile_grid.results.results import COMPLETE, INCOMPLETE, StageResult
from profile_grid.results.run_tables import RunTables, tables_status
from profile_grid.stages.capture import capture_problems, step_tables
from profile_grid.stages.capture.step_tables import TIMES_OF_A_PHASE, measured_activities, measured_ranges, phase_table
from profile_grid.study.stages import CAPTURE
from profile_grid.study.table_spec import TableSpec, columns
from profile_grid.tables.names import BACKWARD, FORWARD, STEP

(SQLITE,) = CAPTURE.files  # the file of rank 0
# names of nsys's reports (nsys stats --help-reports) by their names in this project; OLD_REPORTS is for older versions
REPORTS = {"kernel_summary": "cuda_gpu_kern_sum", "nvtx_summary": "nvtx_sum", "api_summary": "cuda_api_sum"}
OLD_REPORTS = {"kernel_summary": "gpukernsum", "nvtx_summary": "nvtxsum", "api_summary": "cudaapisum"}
RENAMED_IN = (2023, 1)  # the first version of nsys with the names in REPORTS
STATS_TIMEOUT_S = 600


def run_tables(
    capture: StageResult, folder: Path, extra_rules: Sequence[dict] = (), diagnosis_rules: Sequence[dict] = ()
) -> RunTables:
    """The tables of a run, from its captures in `folder`, one for each rank; no tables unless all captures are
    complete. `extra_rules` are custom kernel classes, `diagnosis_rules` custom rules of the diagnosis."""
    paths = [folder / name for name in files_of(capture)]
    for path in paths:
        if reason := identity_difference(capture, path):
            return RunTables(tables_status(INCOMPLETE, f"no valid capture of this run: {reason}"), {})
    status, tables = step_tables.tables_of_file(capture, paths[0], extra_rules, diagnosis_rules)
    if status["status"] != COMPLETE or len(paths) == 1:
        return RunTables(status, tables)
    try:
        return RunTables(status, tables | tables_of_ranks(capture, paths, extra_rules))
    except TraceError as error:
        return RunTables(tables_status(INCOMPLETE, str(error), status["warnings"]), {})


def run_texts(capture: StageResult, folder: Path) -> dict[str, str]:
    """The reports of nsys on the capture of rank 0, by file name; instead of a missing one, a line that says why."""
    return {f"reports/{name}.csv": text for name, text in _reports_or_comments(capture, folder / SQLITE).items()}


def files_of(capture: StageResult) -> list[str]:
    """The file names of the captures of all ranks, 0 first; only that of rank 0 if the capture is not complete."""
    ranks = capture.facts.get("ranks") if capture.status == COMPLETE else None
    return [rank["file"] for rank in ranks or ()] or [SQLITE]


def tables_of_ranks(
    capture: StageResult, paths: Sequence[Path], extra_rules: Sequence[dict] = ()
) -> dict[str, pd.DataFrame]:
    """The tables that compare the captures of all ranks, 0 first. Raises TraceError if one is incomplete."""
    with ExitStack() as stack:
        ranks = [_rank(number, stack.enter_context(Trace(path, extra_rules))) for number, path in enumerate(paths)]
        _require_complete(capture, ranks)
        return {
            "rank_phases": pd.concat([_phases(rank) for rank in ranks], ignore_index=True),
            "rank_steps": communication.communication(ranks, STEP),
            "collectives": collectives.collectives(ranks, STEP),
            "layer_gathers": communication.lateness_of_gathers(ranks, STEP, (FORWARD, BACKWARD), BLOCK),
        }


def _rank(number: int, trace: Trace) -> RankTrace:
    """A rank with its capture, which records one process. −1 stands for the process if it ran nothing on a GPU."""
    process = trace.gpu_activities.process
    return RankTrace(number, trace, int(process[0]) if len(process) else -1)


def _require_complete(capture: StageResult, ranks: Sequence[RankTrace]) -> None:
    """Raises TraceError unless the captures of these ranks are complete; rank 0's is already checked."""
    steps, device = capture.program.spec["measured_steps"], capture.program.machine.device
    for rank in ranks[1:]:
        errors, _ = capture_problems.errors_and_warnings(
            rank.trace, measured_steps=steps, device=device, backend=capture.facts["backend"]
        )
        if errors:
            raise TraceError(f"rank {rank.number}: {combined_problem(errors)}")
    for finding in communication.findings_of_ranks(ranks, STEP):
        if finding.severity == ERROR:
            raise TraceError(finding.message)


def _phases(rank: RankTrace) -> pd.DataFrame:
    """The phases of a rank on each of its devices."""
    activities, ranges = measured_activities(rank.trace), measured_ranges(rank.trace)
    tables = [
        phase_table(activities[activities["device"] == device], ranges).assign(rank=rank.number, device=device)
        for device in rank.devices
    ]
    return pd.concat(tables or [RANK_PHASES.empty()], ignore_index=True)[RANK_PHASES.names]


def _reports_or_comments(capture: StageResult, sqlite: Path) -> dict[str, str]:
    """The reports on this capture by their names in this project, or comments that say why there are none."""
    if capture.facts["backend"] != "nsys":
        return dict.fromkeys(REPORTS, "# no nsys report: captured by PyTorch's profiler\n")
    if capture.status != COMPLETE:
        return dict.fromkeys(REPORTS, f"# no nsys report: {capture.status}\n")
    if nsys.find() is None:
        return dict.fromkeys(REPORTS, "# no nsys report: the machine that made these tables has no nsys\n")
    with tempfile.TemporaryDirectory() as scratch:
        return reports(sqlite, Path(scratch), nsys.version_numbers())


def reports(sqlite: Path, scratch: Path, version: tuple[int, ...]) -> dict[str, str]:
    """What this version of nsys reports on a capture, by names in this project: CSV, or a comment that says why not."""
    nsys_names = OLD_REPORTS if version < RENAMED_IN else REPORTS
    command = ["nsys", "stats", "--format=csv", f"--output={scratch / 'report'}", "--force-overwrite=true"]
    command += [*(f"--report={name}" for name in nsys_names.values()), str(sqlite)]
    try:
        stats = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=STATS_TIMEOUT_S
        )
        output, ending = f"{stats.stdout}\n{stats.stderr}", f"nsys stats ended with exit status {stats.returncode}"
    except subprocess.TimeoutExpired:
        output, ending = "", f"nsys stats was killed after {STATS_TIMEOUT_S} s"
    return {
        name: _report_or_comment(scratch / f"report_{nsys_name}.csv", nsys_name, output, ending)
        for name, nsys_name in nsys_names.items()
    }


def _report_or_comment(path: Path, nsys_name: str, output: str, ending: str) -> str:
    """The CSV in the file of a report. Without a file: a line that says why, while the output of nsys goes to standard
    error, which is a log. `ending` says how nsys ended."""
    if path.exists() and path.stat().st_size:
        return path.read_text(encoding="utf-8", errors="replace")
    # nsys prints "Processing [FILE] with [.../NAME.py] ..." and then its message, for one report after the other
    message = output.partition(f"{nsys_name}.py")[2].partition("Processing [")[0].strip()
    print(f"nsys stats on {nsys_name}: {message or output.strip()}", file=sys.stderr)
    reason = "the capture has nothing for it" if "SKIPPED:" in message else ending
    return f"# nsys stats wrote no {nsys_name}: {reason}\n"


KEY_COLUMNS = columns("""
    rank | int | | number of the process, from 0
    device | int | | number of its GPU, as its capture counts them; −1 on a CPU
    step | int | | number of the measured step, from 0
""")
PHASE_COLUMNS = columns("phase | text | | as in the table phases", TIMES_OF_A_PHASE)
RANK_PHASES = TableSpec(
    "rank_phases",
    "One row per run on several GPUs, rank, device, step and phase; the table phases has those of rank 0",
    columns(KEY_COLUMNS, PHASE_COLUMNS),
)
RANK_STEPS = TableSpec(
    "rank_steps",
    "One row per run on several GPUs, rank, device and measured step, under the profiler",
    columns(
        KEY_COLUMNS,
        """
    step_ns | int | ns | length of the step on this device: the sum of the next four columns
    compute_ns | int | ns | while at least one kernel ran that is not communication; on a CPU an operator
    exposed_communication_ns | int | ns | while communication ran, and no such kernel
    exposed_memory_ns | int | ns | while copies or fills ran, and neither of these
    idle_ns | int | ns | while nothing ran
    communication_ns | int | ns | while at least one collective ran
    overlapped_ns | int | ns | the part of it in which a kernel computed
    collectives | int | | collectives
    bytes | int | B | that they reduced, gathered or scattered on this rank; empty if a size is unknown
    transfer_ns | int | ns | sum over the collectives of the shortest duration on any rank
    waiting_ns | int | ns | sum of their additional time on this rank: waiting for the slowest
""",
    ),
)
COLLECTIVES = TableSpec(
    "collectives",
    "One row per run on several GPUs, rank, device, step and collective, under the profiler",
    columns(
        KEY_COLUMNS,
        """
    number | int | | its position in the step by launch, from 0; the same on all ranks
    operation | text | | all-reduce, ...
    range | text | | innermost range around its launch
    kernel | text | | full name of its kernel; gloo:all_reduce on a CPU
    bytes | int | B | of the tensor that is reduced, gathered or scattered, on one rank
    bucket | int | | number of the bucket of gradients, if they are reduced in buckets
    start_ns | int | ns | its start, counted from the start of the step on this device
    duration_ns | int | ns | its time on this rank, including waiting for the others
    exposed_ns | int | ns | the part of it in which no kernel computed
    transfer_ns | int | ns | the shortest of its times on all ranks
    waiting_ns | int | ns | duration less transfer
    algorithm_gb_per_s | float | 10^9 B/s | bytes ÷ transfer
    bus_gb_per_s | float | 10^9 B/s | that × 2(n − 1)/n for an all-reduce of n ranks: what the busiest link carried
""",
    ),
)
LAYER_GATHERS = TableSpec(
    "layer_gathers",
    "One row per run with all-gathers, rank, device, step, pass and layer, under the profiler",
    columns(
        KEY_COLUMNS,
        """
    pass | text | | forward or backward
    layer | int | | number of the block in the pass, from 0, in the order in which blocks are computed
    begin_ns | int | ns | when it could be computed, counted from the start of the step: the block before had ended
    end_ns | int | ns | when its computation ended
    gathers | int | | all-gathers that ended in between
    lateness_ns | int | ns | the part from begin to end in which nothing was computed and one of these had not ended
""",
    ),
)
RANK_TABLES = (RANK_PHASES, RANK_STEPS, COLLECTIVES, LAYER_GATHERS)
TABLES = (*step_tables.TABLES, *RANK_TABLES)
