"""Runs one run under a profiler: `python -m workflow.scripts.capture --specification JSON --output capture.json`.

capture.sqlite (and nsys's own report) are written beside the JSON. Where nothing could be captured, because memory ran
out or the profiler failed, capture.sqlite holds one table that says so, and the JSON holds the reason.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from profile_grid.checkout import git_state
from profile_grid.files import remove_leftovers, replacing, write_json
from profile_grid.measuring.capture import PUBLISHED, captured
from profile_grid.measuring.capture_identity import full_disk_as_os_error, identity, write_specification
from profile_grid.measuring.gpu_check import notes_before
from profile_grid.measuring.leases import lease_for
from profile_grid.measuring.progress import announced, say, say_notes
from workflow.command import run_command

SCRATCH = ".capture-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--specification", type=json.loads, required=True, help="canonical JSON made by profile_grid.study.runs"
    )
    parser.add_argument("--sources", required=True, help="digest of the files that decide what is measured")
    parser.add_argument("--output", type=Path, required=True, help="capture.json of the run")
    parser.add_argument("--log", type=Path, required=True, help="everything the program prints is appended here")
    parser.add_argument("--time-limit-s", type=float, required=True)
    arguments = parser.parse_args()
    folder = arguments.output.parent
    remove_leftovers(*(folder / name for name in (arguments.output.name, *PUBLISHED)), scratch=SCRATCH)
    result = _captured(arguments, folder)
    sqlite = folder / "capture.sqlite"
    if result["status"] != "complete":
        _write_status(sqlite, result)
    write_json(arguments.output, result | identity(sqlite) | {"sources": arguments.sources, "git": git_state()})


def _captured(arguments: argparse.Namespace, folder: Path) -> dict:
    """What capture.json holds; the files of a capture are in the folder. Raises ProgramFailed on a crash."""
    program = arguments.specification["program"]
    # the scratch folder is beside the results, so that what is whole can be moved into place in one step
    with (
        lease_for(program["device"], f"capture of {program['run']}", say) as lease,
        announced("capture", program, arguments.output),
        tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH) as scratch,
    ):
        notes = notes_before(program, lease.gpus)
        say_notes(notes)
        result = captured(
            arguments.specification, folder, Path(scratch), log=arguments.log, time_limit_s=arguments.time_limit_s
        )
        if result["reason"]:
            say_notes([f"incomplete after {result['attempts']} attempts: {result['reason']}; see {arguments.log}"])
    return result | {"notes": notes, "waited_s": lease.waited_s}


def _write_status(path: Path, result: dict) -> None:
    with replacing(path) as beside:
        with full_disk_as_os_error(path), closing(sqlite3.connect(beside)) as database, database:
            database.execute("CREATE TABLE CAPTURE_STATUS (status TEXT NOT NULL, reason TEXT)")
            database.execute("INSERT INTO CAPTURE_STATUS VALUES (?, ?)", (result["status"], result["reason"]))
        write_specification(beside, result["specification"])


if __name__ == "__main__":
    run_command(main)
