"""Records every allocation of a process, from before the model is made."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

from profile_grid.files import replacing
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import program_command, run_to_result, stage_output
from profile_grid.study.stages import MEMORY

(HISTORY,) = MEMORY.files
(SNAPSHOT,) = MEMORY.may_leave


def measure(job: Job) -> dict:
    """What memory.json holds of the process. The history, to the end or to where memory ran out, and on a GPU the
    allocator's snapshot are in the job's folder; where the program wrote none, an empty history. Raises ProgramFailed
    when the program does not end well."""
    result = job.scratch / "memory.json"
    command = program_command(job, result, "memory", job.scratch / HISTORY, job.leases.address)
    written, outcome = run_to_result(job, f"memory of {job.program['run']}", result, command)
    if (job.scratch / HISTORY).exists():
        for name in (SNAPSHOT, HISTORY):
            if (job.scratch / name).exists():
                shutil.move(job.scratch / name, job.folder / name)
    else:
        with replacing(job.folder / HISTORY) as beside:
            beside.write_bytes(gzip.compress(json.dumps(None).encode(), mtime=0))
    return stage_output(written, {"program": outcome.seconds}, {})


def counted_peak_bytes(folder: Path) -> int:
    """The most bytes that the process whose history lies in this folder held: reserved by the allocator of a GPU,
    requested on a processor."""
    counters = json.loads(gzip.decompress((folder / HISTORY).read_bytes()))["counters"]
    return counters["reserved_peak"] or counters["requested_peak"]
