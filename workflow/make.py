"""Runs a job of the analysis and records what made its outputs: `python -m workflow.make RECIPE`.

RECIPE is the JSON of an `AnalysisJob` (profile_grid/freshness/jobs.py). Code and inputs are digested before and after
its command runs: if they changed meanwhile, the job fails and the outputs get no record.
"""

import runpy
import sys
from pathlib import Path

from profile_grid.errors import OutsideError
from profile_grid.freshness import imports, records
from profile_grid.freshness.digests import FileDigests
from profile_grid.freshness.jobs import AnalysisJob, digest_of_packages, digest_of_programs
from workflow.command import run_command

ROOT = Path(__file__).parents[1]


def main(recipe: str) -> None:
    job, digest_of = AnalysisJob.from_json(recipe), FileDigests()
    before = current_recipe(job, digest_of)
    imports.remember_sources()
    records.remove_records(job.outputs)
    sys.argv = list(job.command)
    runpy.run_module(job.command[0], run_name="__main__", alter_sys=True)
    if current_recipe(job, digest_of) != before:
        raise OutsideError(
            f"the code or the inputs of {job.name} changed while it ran, so its outputs are stale: run again"
        )
    digests = {path: digest_of(path) for path in job.outputs}
    if missing := [path for path, digest in digests.items() if digest is None]:
        raise OutsideError(f"{job.command[0]} did not write {missing[0]}")
    records.write_records(digests, before)


def current_recipe(job: AnalysisJob, digest_of: FileDigests) -> records.Recipe:
    """The recipe of the job's outputs, from the current files."""
    imports.forget_imports()
    code, packages = digest_of_programs(ROOT, job.programs, job.patterns), digest_of_packages(ROOT, job.programs)
    return job.recipe(code, packages, digest_of)


if __name__ == "__main__":
    run_command(main)
