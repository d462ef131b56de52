"""The tables of one run from the captures of all its ranks, and the summaries that Nsight Systems itself makes."""

from __future__ import annotations

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

# The reports have had other names until 2022.4 (nsys stats --help-reports).
REPORTS = {
    "kernel_summary": ("cuda_gpu_kern_sum", "gpukernsum"),
    "nvtx_summary": ("nvtx_sum", "nvtxsum"),
    "api_summary": ("cuda_api_sum", "cudaapisum"),
}
RENAMED_IN = (2023, 1)
PATIENCE_S = 600


def reports_of_capture(capture: StageResult, folder: Path) -> dict[str, str]:
    """The text of every report by its file; one line of comment where there is none."""
    return {f"reports/{name}.csv": text for name, text in _texts(capture, folder / "capture.sqlite").items()}


def _texts(capture: StageResult, sqlite: Path) -> dict[str, str]:
    if capture.facts["backend"] != "nsys":
        return dict.fromkeys(REPORTS, "# no nsys report: captured by PyTorch's profiler\n")
    if capture.status != COMPLETE:
        return dict.fromkeys(REPORTS, f"# no nsys report: {capture.status}\n")
    if nsys.find() is None:
        return dict.fromkeys(REPORTS, "# no nsys report: there is no nsys on the machine that made these tables\n")
    with tempfile.TemporaryDirectory() as scratch:
        return reports(sqlite, Path(scratch), nsys.version_numbers())


def reports(sqlite: Path, scratch: Path, version: tuple[int, ...]) -> dict[str, str]:
    """nsys's own summaries of an export as CSV text, by our name; one line of comment where nsys had nothing to say."""
    names = {ours: pair[version < RENAMED_IN] for ours, pair in REPORTS.items()}
    command = ["nsys", "stats", "--format=csv", f"--output={scratch / 'report'}", "--force-overwrite=true"]
    command += [f"--report={name}" for name in names.values()]
    try:
        done = subprocess.run(
            [*command, str(sqlite)], capture_output=True, text=True, errors="replace", check=False, timeout=PATIENCE_S
        )
        said, ended = f"{done.stdout}\n{done.stderr}", f"nsys stats ended with exit status {done.returncode}"
    except subprocess.TimeoutExpired:
        said, ended = "", f"nsys stats was ended after {PATIENCE_S} s"
    return {ours: _text(scratch / f"report_{name}.csv", name, said, ended) for ours, name in names.items()}


def _text(path: Path, name: str, said: str, ended: str) -> str:
    """The CSV, or why there is none in words of our own: what nsys prints goes to standard error, which is a log."""
    if path.exists() and path.stat().st_size:
        return path.read_text(encoding="utf-8", errors="replace")
    about = said.partition(f"{name}.py")[2].partition("Processing [")[0].strip()
    print(f"nsys stats on {name}: {about or said.strip()}", file=sys.stderr)
    why = "the capture holds nothing for it" if "SKIPPED:" in about else ended
    return f"# nsys stats wrote no {name}: {why}\n"


TABLES = (*step_tables.TABLES, *rank_tables.TABLES)


def run_tables(
    capture: StageResult, folder: Path, extra_rules: Sequence[dict] = (), diagnosis_rules: Sequence[dict] = ()
) -> RunTables:
    """The tables of a run's captures, without rows unless all are complete. `folder` holds the captures of all its
    ranks; `extra_rules` are custom kernel classes, `diagnosis_rules` custom rules of the diagnosis."""
    files = rank_tables.files_of(capture)
    for name in files:
        if reason := difference(capture, folder / name):
            status = tables_status(INCOMPLETE, f"{reason}: it is not the capture of this run")
            return RunTables(status, {})
    status, tables = step_tables.tables_of_file(capture, folder / files[0], extra_rules, diagnosis_rules)
    if status["status"] != COMPLETE or len(files) == 1:
        return RunTables(status, tables)
    reason, of_ranks = rank_tables.tables_of_ranks(capture, [folder / name for name in files], extra_rules)
    if reason:
        return RunTables(tables_status(INCOMPLETE, reason, status["warnings"]), {})
    return RunTables(status, tables | of_ranks)


def run_texts(capture: StageResult, folder: Path) -> dict[str, str]:
    """nsys's own reports of the capture of rank 0, by file."""
    return reports_of_capture(capture, folder)
