"""Writes nsys's own reports of one run as CSV: kernel, NVTX and CUDA API summaries, from the published SQLite.

A run without an nsys capture gets files of one line that say so.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from kernel_tables.reading import nsys
from profile_grid.files import write_text
from profile_grid.merging.nsys_reports import REPORTS, reports
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--capture", type=Path, required=True, help="capture.json; capture.sqlite lies beside it")
    parser.add_argument("--output", type=Path, required=True, help="folder of the CSV files")
    arguments = parser.parse_args()
    for name, text in _texts(arguments.capture).items():
        write_text(arguments.output / f"{name}.csv", text)


def _texts(path_to_capture: Path) -> dict[str, str]:
    capture = json.loads(path_to_capture.read_text())
    if capture["backend"] != "nsys":
        return dict.fromkeys(REPORTS, "# no nsys report: captured by PyTorch's profiler\n")
    if capture["status"] != "complete":
        return dict.fromkeys(REPORTS, f"# no nsys report: {capture['status']}\n")
    if nsys.find() is None:
        return dict.fromkeys(REPORTS, "# no nsys report: there is no nsys on the machine that made these tables\n")
    with tempfile.TemporaryDirectory() as scratch:
        return reports(path_to_capture.parent / "capture.sqlite", Path(scratch), nsys.version_numbers())


if __name__ == "__main__":
    run_command(main)
