"""Records every allocation of the processes of a run, from before the model is made."""

import gzip
import json
import shutil

from profile_grid.files import replacing
from profile_grid.host.processes.job import Job
from profile_grid.host.processes.measured_program import stage_output
from profile_grid.host.processes.ranks import existing_rank_files, merge_rank_results, results_of_ranks
from profile_grid.study.stages import MEMORY

(HISTORY,) = MEMORY.files
(SNAPSHOT,) = MEMORY.optional_files


def measure(job: Job) -> dict:
    """The content of memory.json. The job's folder then has the history of every rank, or `null` as the history if the
    program wrote none; on a GPU also the snapshot of the first rank's allocator. Raises ProgramFailed if it fails."""
    title, history = f"memory of {job.program['run']}", job.scratch / HISTORY
    results, outcome = results_of_ranks(job, title, job.scratch / "memory.json", profiler="memory", capture=history)
    if history.exists():
        for path in existing_rank_files(job.scratch, SNAPSHOT, HISTORY):
            shutil.move(path, job.folder / path.name)
    else:
        with replacing(job.folder / HISTORY) as partial:
            partial.write_bytes(gzip.compress(json.dumps(None).encode(), mtime=0))
    program, facts = merge_rank_results(results)
    return stage_output(program, {"program": outcome.seconds}, facts)
