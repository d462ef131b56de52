"""Runs one run under a profiler: `python -m workflow.scripts.capture --specification JSON --output capture.json`.

capture.sqlite (and nsys's own report) are written beside the JSON. Where nothing could be captured, because memory ran
out or the profiler failed, capture.sqlite holds one table that says so, and the JSON holds the reason.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

from profile_grid.capture import captured
from profile_grid.checkout import git_state
from profile_grid.files import write_json
from profile_grid.processes import ProgramFailed
from profile_grid.progress import announced


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--specification", type=json.loads, required=True, help="canonical JSON made by profile_grid.runs"
    )
    parser.add_argument("--output", type=Path, required=True, help="capture.json of the run")
    parser.add_argument("--log", type=Path, required=True, help="everything the program prints is appended here")
    parser.add_argument("--time-limit-s", type=float, required=True)
    arguments = parser.parse_args()
    specification, folder = arguments.specification, arguments.output.parent
    for leftover in ("capture.nsys-rep", "capture.sqlite"):
        (folder / leftover).unlink(missing_ok=True)
    with announced("capture", specification["program"], arguments.output):
        # the scratch folder is beside the results, so that what is whole can be moved into place in one step
        with tempfile.TemporaryDirectory(dir=folder, prefix=".capture-") as scratch:
            try:
                result = captured(
                    specification, folder, Path(scratch), log=arguments.log, time_limit_s=arguments.time_limit_s
                )
            except ProgramFailed as error:
                sys.exit(str(error))
        if result["status"] != "complete":
            _write_status(folder / "capture.sqlite", result)
    write_json(arguments.output, result | {"git": git_state()})


def _write_status(path: Path, result: dict) -> None:
    database = sqlite3.connect(path)
    with database:
        database.execute("CREATE TABLE CAPTURE_STATUS (status TEXT NOT NULL, reason TEXT)")
        database.execute("INSERT INTO CAPTURE_STATUS VALUES (?, ?)", (result["status"], result["reason"]))
    database.close()


if __name__ == "__main__":
    main()
