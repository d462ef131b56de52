"""Nsight Systems' own summaries of a capture, under the report names of old and new versions."""

from __future__ import annotations

import subprocess
from pathlib import Path

from kernel_tables.reading.publishable import without_paths

# The reports have had other names until 2022.4 (nsys stats --help-reports).
REPORTS = {
    "kernel_summary": ("cuda_gpu_kern_sum", "gpukernsum"),
    "nvtx_summary": ("nvtx_sum", "nvtxsum"),
    "api_summary": ("cuda_api_sum", "cudaapisum"),
}
RENAMED_IN = (2023, 1)
PATIENCE_S = 600


def reports(sqlite: Path, scratch: Path, version: tuple[int, ...]) -> dict[str, str]:
    """nsys's own summaries of an export as CSV text, by our name; one line of comment where nsys had nothing to say."""
    names = {ours: pair[version < RENAMED_IN] for ours, pair in REPORTS.items()}
    command = ["nsys", "stats", "--format=csv", f"--output={scratch / 'report'}", "--force-overwrite=true"]
    command += [f"--report={name}" for name in names.values()]
    try:
        done = subprocess.run(
            [*command, str(sqlite)], capture_output=True, text=True, errors="replace", check=False, timeout=PATIENCE_S
        )
        said = f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    except subprocess.TimeoutExpired:
        said = f"it was ended after {PATIENCE_S} s"
    return {ours: _text(scratch / f"report_{name}.csv", name, said) for ours, name in names.items()}


def _text(path: Path, name: str, said: str) -> str:
    """The CSV, or why there is none: what nsys said after it named the report, else its last words. No path of this
    host."""
    if path.exists() and path.stat().st_size:
        return path.read_text()
    about = said.partition(f"{name}.py")[2].partition("SKIPPED:")[2].strip().split("\n")[0].strip()
    reason = about or next(line for line in reversed(said.split("\n")) if line.strip())
    return f"# nsys stats wrote no {name}: {without_paths(reason).removeprefix('<path> ')}\n"
