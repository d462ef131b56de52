"""Runs one stage of one run: `python -m workflow.scripts.measure --stage timing --specification JSON --output FILE`.

The result is one JSON; further files of the stage are written beside it. A result says how it ended: out of memory and
incomplete are results, a crash of the measured program is none.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib import import_module
from pathlib import Path

from profile_grid.checkout import git_state
from profile_grid.files import remove_leftovers, write_json
from profile_grid.measuring.capture_identity import identity
from profile_grid.measuring.gpu_check import notes_before
from profile_grid.measuring.job import Job, utc
from profile_grid.measuring.leases import lease_for
from profile_grid.measuring.progress import announced, say, say_notes
from profile_grid.measuring.results import FORMAT
from profile_grid.study.stages import BY_NAME, Stage
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=list(BY_NAME), required=True)
    parser.add_argument(
        "--specification", type=json.loads, required=True, help="canonical JSON made by profile_grid.study.runs"
    )
    parser.add_argument("--sources", required=True, help="digest of the files that decide what is measured")
    parser.add_argument("--output", type=Path, required=True, help="the stage's JSON, in the folder of the run")
    parser.add_argument("--log", type=Path, required=True, help="everything the program prints is appended here")
    parser.add_argument("--time-limit-s", type=float, required=True)
    arguments = parser.parse_args()
    stage, folder = BY_NAME[arguments.stage], arguments.output.parent
    scratch = f".{stage.name}-"
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(*(folder / name for name in (stage.result, *stage.files, *stage.may_leave)), scratch=scratch)
    # beside the results where files are moved into place: that takes one step, and no copy
    with tempfile.TemporaryDirectory(dir=folder if stage.files else None, prefix=scratch) as path:
        result = measured(stage, job_of(arguments, Path(path)), arguments.output)
    files = {name: identity(folder / name) for name in stage.files}
    write_json(arguments.output, result | {"files": files, "sources": arguments.sources, "git": git_state()})


def job_of(arguments: argparse.Namespace, scratch: Path) -> Job:
    """What the stage is told."""
    return Job(arguments.specification, arguments.output.parent, scratch, arguments.log, arguments.time_limit_s)


def measured(stage: Stage, job: Job, output: Path) -> dict:
    """The result of the stage, measured while nothing else is. Raises ProgramFailed on a crash."""
    module, _, function = stage.runs.partition(":")
    run = getattr(import_module(module), function)
    with (
        lease_for(job.program["device"], f"{stage.name} of {job.program['run']}", say) as lease,
        announced(stage.name, job.program, output),
    ):
        notes = notes_before(job.program, lease.gpus)
        say_notes(notes)
        result = run(job)
        if result["reason"]:
            say_notes([f"{result['status']}: {result['reason']}; see {job.log}"])
    return {
        "format": FORMAT,
        **result,
        "notes": notes,
        "specification": job.specification,
        "seconds": result["seconds"] | {"all": round(time.time() - lease.since_unix_s, 3)},
        "waited_s": lease.waited_s,
        "started_utc": utc(lease.since_unix_s),
    }


if __name__ == "__main__":
    run_command(main)
