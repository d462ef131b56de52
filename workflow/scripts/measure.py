"""Runs one stage of one run: `python -m workflow.scripts.measure --stage timing --specification JSON --output FILE`.

The result is one JSON; further files of the stage are written next to it. A result says how it ended: out of memory and
incomplete are results, a crash of the measured program is not.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from cs336_model.nvml import nvml
from cs336_model.program.without_times import STOPPED
from profile_grid.checkout import git_state
from profile_grid.files import remove_leftovers, write_json
from profile_grid.freshness.environment import variables_record
from profile_grid.freshness.versions import host_record
from profile_grid.host.gpu_check import notes_before
from profile_grid.host.leases.gpu_leases import Lease
from profile_grid.host.leases.lease_server import Leases, leases_for
from profile_grid.host.processes.job import Job, utc
from profile_grid.host.processes.ranks import existing_rank_files, rank_count
from profile_grid.host.progress import ProgressLine, say, say_notes
from profile_grid.results.capture_identity import identity
from profile_grid.results.results import FORMAT, OUT_OF_MEMORY, STOPPED_AT_S
from profile_grid.study.stage import Stage
from profile_grid.study.stages import BY_NAME
from workflow.command import run_command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stage", choices=list(BY_NAME), required=True)
    parser.add_argument(
        "--specification",
        type=json.loads,
        required=True,
        help="what to measure: canonical JSON of profile_grid.study.runs",
    )
    parser.add_argument("--sources", required=True, help="digest of the files that decide what is measured")
    parser.add_argument("--output", type=Path, required=True, help="the stage's JSON, in the folder of the run")
    parser.add_argument("--log", type=Path, required=True, help="everything the program prints is appended here")
    parser.add_argument("--time-limit-s", type=float, required=True)
    arguments = parser.parse_args()
    stage, folder = BY_NAME[arguments.stage], arguments.output.parent
    scratch = f".{stage.name}-"
    folder.mkdir(parents=True, exist_ok=True)
    of_ranks = existing_rank_files(folder, *stage.files, *stage.may_leave)
    remove_leftovers(
        *(folder / name for name in (stage.result, *stage.files, *stage.may_leave)), *of_ranks, scratch=scratch
    )
    # next to the results where files are moved into place: that takes one step, and no copy
    with tempfile.TemporaryDirectory(dir=folder if stage.files else None, prefix=scratch) as path:
        result = measured(stage, lambda leases: job_of(arguments, Path(path), leases), arguments)
    files = {path.name: identity(path) for path in existing_rank_files(folder, *stage.files)}
    environment = variables_record(os.environ, arguments.specification["environment"]) | host_record()
    made_by = {"environment": environment, "sources": arguments.sources, "git": git_state()}
    write_json(arguments.output, result | {"files": files} | made_by)


def job_of(arguments: argparse.Namespace, scratch: Path, leases: Leases) -> Job:
    """The job of the stage."""
    return Job(arguments.specification, arguments.output.parent, scratch, arguments.log, arguments.time_limit_s, leases)


def measured(stage: Stage, job_with: Callable[[Leases], Job], arguments: argparse.Namespace) -> dict:
    """The result of the stage, measured while nothing else is. Raises ProgramFailed on a crash."""
    run, program = stage.load("measure").measure, arguments.specification["program"]
    announced, notes, started = ProgressLine(stage.name, program["run"], arguments.output), [], time.monotonic()

    def began(lease: Lease) -> None:
        announced.begins()
        new = [note for note in notes_before(program, lease.gpus, lease.alone) if note not in notes]
        notes.extend(new)
        say_notes(new)

    what, quiet = f"{stage.name} of {program['run']}", arguments.specification.get("quiet_host", False)
    nvml()  # ahead: once there is a lease the GPU waits for what is asked of it
    with leases_for(program["device"], what, rank_count(program), quiet_host=quiet, say=say, began=began) as leases:
        result = without_own_neighbours(run(job := job_with(leases)), leases)
        if result["status"] == OUT_OF_MEMORY and not leases.were_alone():
            say(f"{what} ran out of memory next to a measurement that was ending: once more, alone")
            leases.alone, scratch = True, job.scratch / "alone"
            scratch.mkdir()
            notes.clear()  # of a GPU that was not empty
            result = run(replace(job, scratch=scratch))
    if result["status"] == STOPPED:
        result["facts"] |= {STOPPED_AT_S: arguments.time_limit_s}
    if result["reason"]:
        say_notes([f"{result['status']}: {result['reason']}; see {arguments.log}"])
    seconds = time.monotonic() - started - leases.waited_s()
    announced.ends(seconds)
    return {
        "format": FORMAT,
        **result,
        "notes": notes,
        "specification": arguments.specification,
        "seconds": result["seconds"] | {"all": round(seconds, 3), "leased": round(leases.held_s, 3)},
        "waited_s": round(leases.waited_s(), 3),
        "neighbours": leases.neighbours,
        "started_utc": utc(leases.given[0].since_unix_s if leases.given else time.time()),
    }


def without_own_neighbours(result: dict, leases: Leases) -> dict:
    """The result, without the GPU's other processes if an ending measurement of this project was one of them."""
    if result["program"] and result["program"]["machine"] and not leases.were_alone():
        result["program"]["machine"]["other_processes"] = None
    return result


if __name__ == "__main__":
    run_command(main)
