"""The tables of one run from the captures of all its ranks, and the summaries that Nsight Systems itself makes."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernel_tables.reading import nsys
from profile_grid.results.capture_identity import difference
from profile_grid.results.results import COMPLETE, INCOMPLETE, StageResult
from profile_grid.results.run_tables import RunTables, tables_status
from profile_grid.stages.capture import rank_tables, step_tables

# The reports had other names until 2022.4 (nsys stats --help-reports).
REPORTS = {
    "kernel_summary": ("cuda_gpu_kern_sum", "gpukernsum"),
    "nvtx_summary": ("nvtx_sum", "nvtxsum"),
    "api_summary": ("cuda_api_sum", "cudaapisum"),
}
RENAMED_IN = (2023, 1)
PATIENCE_S = 600


def reports_of_capture(capture: StageResult, folder: Path) -> dict[str, str]:
    """The text of every report by its file; a comment of one line if there is none."""
    return {f"reports/{name}.csv": text for name, text in _texts(capture, folder / "capture.sqlite").items()}


def _texts(capture: StageResult, sqlite: Path) -> dict[str, str]:
    if capture.facts["backend"] != "nsys":
        return dict.fromkeys(REPORTS, "# no nsys report: captured by PyTorch's profiler\n")
    if capture.status != COMPLETE:
        return dict.fromkeys(REPORTS, f"# no nsys report: {capture.status}\n")
    if nsys.find() is None:
        return dict.fromkeys(REPORTS, "# no nsys report: the machine that made these tables has no nsys\n")
    with tempfile.TemporaryDirectory() as scratch:
        return reports(sqlite, Path(scratch), nsys.version_numbers())


def reports(sqlite: Path, scratch: Path, version: tuple[int, ...]) -> dict[str, str]:
    """The summaries of nsys for an export as CSV text, by the name of this project; a comment if there is none."""
    names = {ours: pair[version < RENAMED_IN] for ours, pair in REPORTS.items()}
    command = ["nsys", "stats", "--format=csv", f"--output={scratch / 'report'}", "--force-overwrite=true"]
    command += [f"--report={name}" for name in names.values()]
    try:
        done = subprocess.run(
            [*command, str(sqlite)], capture_output=True, text=True, errors="replace", check=False, timeout=PATIENCE_S
        )
        output, ending = f"{done.stdout}\n{done.stderr}", f"nsys stats ended with exit status {done.returncode}"
    except subprocess.TimeoutExpired:
        output, ending = "", f"nsys stats was killed after {PATIENCE_S} s"
    return {ours: _text(scratch / f"report_{name}.csv", name, output, ending) for ours, name in names.items()}


def _text(path: Path, name: str, output: str, ending: str) -> str:
    """The CSV, or why there is none in words of this project; the output of nsys goes to standard error, a log."""
    if path.exists() and path.stat().st_size:
        return path.read_text(encoding="utf-8", errors="replace")
    message = output.partition(f"{name}.py")[2].partition("Processing [")[0].strip()
    print(f"nsys stats on {name}: {message or output.strip()}", file=sys.stderr)
    reason = "the capture has nothing for it" if "SKIPPED:" in message else ending
    return f"# nsys stats wrote no {name}: {reason}\n"


TABLES = (*step_tables.TABLES, *rank_tables.TABLES)


def run_tables(
    capture: StageResult, folder: Path, extra_rules: Sequence[dict] = (), diagnosis_rules: Sequence[dict] = ()
) -> RunTables:
    """The tables of a run's captures; none unless all are complete. `folder` has the captures of all its ranks;
    `extra_rules` are custom kernel classes, `diagnosis_rules` custom rules of the diagnosis."""
    files = rank_tables.files_of(capture)
    for name in files:
        if reason := difference(capture, folder / name):
            status = tables_status(INCOMPLETE, f"{reason}: it is not the capture of this run")
            return RunTables(status, {})
    status, tables = step_tables.tables_of_file(capture, folder / files[0], extra_rules, diagnosis_rules)
    if status["status"] != COMPLETE or len(files) == 1:
        return RunTables(status, tables)
    reason, tables_by_rank = rank_tables.tables_of_ranks(capture, [folder / name for name in files], extra_rules)
    if reason:
        return RunTables(tables_status(INCOMPLETE, reason, status["warnings"]), {})
    return RunTables(status, tables | tables_by_rank)


def run_texts(capture: StageResult, folder: Path) -> dict[str, str]:
    """The reports of nsys for the capture of rank 0, by file."""
    return reports_of_capture(capture, folder)
