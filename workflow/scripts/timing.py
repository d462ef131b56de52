"""Times one run without a profiler: `python -m workflow.scripts.timing --specification JSON --output timing.json`."""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from profile_grid.checkout import git_state
from profile_grid.files import remove_leftovers, write_json
from profile_grid.measuring.gpu_check import notes_before
from profile_grid.measuring.leases import lease_for
from profile_grid.measuring.measured_program import program_command, run_to_result
from profile_grid.measuring.progress import announced, say, say_notes
from profile_grid.measuring.results import FORMAT
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--specification", type=json.loads, required=True, help="canonical JSON made by profile_grid.study.runs"
    )
    parser.add_argument("--sources", required=True, help="digest of the files that decide what is measured")
    parser.add_argument("--output", type=Path, required=True, help="timing.json of the run")
    parser.add_argument("--log", type=Path, required=True, help="everything the program prints is appended here")
    parser.add_argument("--time-limit-s", type=float, required=True)
    arguments = parser.parse_args()
    remove_leftovers(arguments.output)
    write_json(arguments.output, _timed(arguments) | {"git": git_state()})


def _timed(arguments: argparse.Namespace) -> dict:
    """What timing.json holds; raises ProgramFailed when the program does not end well."""
    program = arguments.specification["program"]
    with (
        lease_for(program["device"], f"timing of {program['run']}", say) as lease,
        announced("timing", program, arguments.output),
        tempfile.TemporaryDirectory() as scratch,
    ):
        notes = notes_before(program, lease.gpus)
        say_notes(notes)
        result = Path(scratch) / "timing.json"
        written, outcome = run_to_result(
            program_command(program, result), f"timing of {program['run']}", result,
            environment=arguments.specification["environment"], log=arguments.log,
            time_limit_s=arguments.time_limit_s,
        )  # fmt: skip
    return {
        "format": FORMAT,
        "status": written["status"],
        "notes": notes,
        "specification": arguments.specification,
        "sources": arguments.sources,
        "program": written,
        "seconds": {"program": outcome.seconds, "all": round(time.time() - lease.since_unix_s, 3)},
        "waited_s": lease.waited_s,
        "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(lease.since_unix_s)),
    }


if __name__ == "__main__":
    run_command(main)
