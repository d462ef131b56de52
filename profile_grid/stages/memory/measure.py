"""Records every allocation of a process, from before the model is made."""

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
    """The content of memory.json. The history, to the end or until memory ran out, and on a GPU the allocator's
    snapshot are in the job's folder; if the program wrote none, an empty history. Raises ProgramFailed if it fails."""
    result, history = job.scratch / "memory.json", job.scratch / HISTORY
    command = program_command(job, result, profiler="memory", capture=history)
    program, outcome = run_to_result(job, f"memory of {job.program['run']}", result, command)
    if history.exists():
        for name in (SNAPSHOT, HISTORY):
            if (job.scratch / name).exists():
                shutil.move(job.scratch / name, job.folder / name)
    else:
        with replacing(job.folder / HISTORY) as partial:
            partial.write_bytes(gzip.compress(json.dumps(None).encode(), mtime=0))
    return stage_output(program, {"program": outcome.seconds}, {})


def counted_peak_bytes(folder: Path) -> int:
    """The most bytes that the process whose history is in this folder held: reserved by the allocator of a GPU,
    requested on a CPU."""
    counters = json.loads(gzip.decompress((folder / HISTORY).read_bytes()))["counters"]
    return counters["reserved_peak"] or counters["requested_peak"]
