"""Runs one stage of one run: `python -m workflow.scripts measure --stage timing --specification JSON --output FILE`.

The result is a JSON file; further files of the stage are next to it. Its status says how the measurement ended: out of
memory, unsupported or incomplete are results, too. A crash is not.
"""

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

from cs336_model.nvidia_smi import nvml
from cs336_model.program.without_times import STOPPED
from profile_grid.checkout import git_state
from profile_grid.files import remove_earlier_outputs, write_json
from profile_grid.freshness.environment import variables_record
from profile_grid.freshness.versions import host_record
from profile_grid.host.gpu_check import notes_before
from profile_grid.host.leases.gpu_leases import Lease
from profile_grid.host.leases.lease_server import Leases, leases_for
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.ranks import existing_rank_files, rank_count
from profile_grid.host.progress import ProgressLine, say, say_notes
from profile_grid.results.capture_identity import file_identity
from profile_grid.results.results import FORMAT, OUT_OF_MEMORY, STOPPED_AT_S
from profile_grid.study.stage import Stage
from profile_grid.study.stages import STAGE_BY_NAME


def main(
    *, stage: Literal[*STAGE_BY_NAME], specification: dict, sources: str, output: Path, log: Path, time_limit_s: float
) -> None:
    """Measures a stage by its specification (profile_grid.study.runs), and writes the JSON `output` and the stage's
    other files into its folder. `sources` is the digest of the code whose change makes the result stale. What the
    program prints is appended to `log`."""
    declared_stage, folder, prefix = STAGE_BY_NAME[stage], output.parent, f".{stage}-"
    folder.mkdir(parents=True, exist_ok=True)
    names = (*declared_stage.files, *declared_stage.optional_files)
    earlier = [folder / name for name in (declared_stage.result_file, *names)]
    remove_earlier_outputs(*earlier, *existing_rank_files(folder, *names), scratch_prefix=prefix)
    # files of a stage are moved into place: on the same file system, that is a rename and no copy
    with tempfile.TemporaryDirectory(dir=folder if declared_stage.files else None, prefix=prefix) as scratch:
        result = run_stage(declared_stage, Job(specification, folder, Path(scratch), log, time_limit_s, Leases()))
    files = {path.name: file_identity(path) for path in existing_rank_files(folder, *declared_stage.files)}
    environment = variables_record(os.environ, specification["environment"]) | host_record()
    origin = {"environment": environment, "sources": sources, "git": git_state()}
    write_json(output, result | {"files": files} | origin)


def run_stage(stage: Stage, job: Job) -> dict:
    """The stage's result, without its files and origin. The job gets its leases here: of GPUs, or of the host if the
    device is a CPU. A measurement that has returned its lease may still be ending on the same GPU: if memory ran out
    next to one, the stage is measured once more, alone. Raises ProgramFailed on a crash."""
    measure, program = stage.load("measure").measure, job.program
    progress_line = ProgressLine(stage.name, program["run"], job.folder / stage.result_file)
    notes, started = [], time.monotonic()

    def begin(lease: Lease) -> None:
        """Prints the start of the measurement, and notes on the leased GPUs that are new."""
        progress_line.print_start()
        notes_of_lease = notes_before(program, lease.gpus, others_may_end=not lease.is_alone)
        new_notes = [note for note in notes_of_lease if note not in notes]
        notes.extend(new_notes)
        say_notes(new_notes)

    # with `quiet_host`, the stage leases the entire host
    name, quiet = f"{stage.name} of {program['run']}", job.specification.get("quiet_host", False)
    nvml()  # loaded before the lease, so that no GPU waits for it
    with leases_for(program["device"], name, rank_count(program), quiet_host=quiet, say=say, on_lease=begin) as leases:
        job = replace(job, leases=leases)
        result = without_own_neighbours(measure(job), leases)
        if result["status"] == OUT_OF_MEMORY and not leases.were_alone():
            say(f"{name} ran out of memory next to a measurement that was ending: once more, alone")
            leases.must_be_alone, scratch = True, job.scratch / "alone"
            scratch.mkdir()
            notes.clear()  # they were on a GPU that was not empty
            result = measure(replace(job, scratch=scratch))
    if result["status"] == STOPPED:
        result["facts"] |= {STOPPED_AT_S: job.time_limit_s}
    if result["reason"]:
        say_notes([f"{result['status']}: {result['reason']}; see {job.log}"])
    seconds = time.monotonic() - started - leases.waited_s()
    began_unix_s = leases.acquired_leases[0].since_unix_s if leases.acquired_leases else time.time()
    progress_line.print_end(seconds)
    return {
        "format": FORMAT,
        **result,
        "notes": notes,
        "specification": job.specification,
        "seconds": result["seconds"] | {"all": round(seconds, 3), "leased": round(leases.held_s, 3)},
        "waited_s": round(leases.waited_s(), 3),
        "neighbours": leases.max_neighbours,
        "started_utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(began_unix_s)),
    }


def without_own_neighbours(result: dict, leases: Leases) -> dict:
    """The result, without the number of other processes on the GPU if one of them may be an ending measurement, which
    is no neighbour that disturbs."""
    if result["program"] and result["program"]["machine"] and not leases.were_alone():
        result["program"]["machine"]["other_processes"] = None
    return result
