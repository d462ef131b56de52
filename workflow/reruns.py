"""Tells Snakemake which jobs to run: profile_grid/freshness/jobs.py decides, by content and not by time.

This uses undocumented parts of Snakemake: the sets of files and rules that --forcerun fills, and two of its checks.
"""

import atexit
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import snakemake
from snakemake.exceptions import WorkflowError
from snakemake.io import ancient
from snakemake.logging import logger

from profile_grid.freshness import digests, records
from profile_grid.freshness.jobs import AnalysisJob, JobPlan, PlannedJob, digest_of_packages, digest_of_programs

CACHE_FILE = Path(".snakemake", "digests.json")


class Reruns:
    """The jobs of a workflow, with the files that they read and write."""

    def __init__(self, workflow, root: Path):
        require_writable_metadata()
        self._workflow = workflow
        self._rule_name = workflow.modifier.modify_rulename  # who uses this as a module may rename its rules
        self._logged_kinds: set[str] = set()  # of reasons
        self.analysis_jobs: dict[str, AnalysisJob] = {}  # by name
        self._has_replaced_checks = False
        # an entry of FileDigests has five values
        self.digest_of = digests.FileDigests(digests.read_cache(CACHE_FILE, lambda entry: len(entry) == 5))
        self.record_of = records.Records()
        self.plan = JobPlan(self._is_forced)
        self._digest_of_programs = cache(partial(digest_of_programs, root))
        self._digest_of_packages = cache(partial(digest_of_packages, root))
        atexit.register(self._remember_digests)

    def add_measurement(self, name: str, outputs: list[str], reason: Callable[[], str | None]) -> None:
        """Adds a job that measures. `reason` returns why its results are stale, or None. It reads no file of a job."""
        self.plan.add(PlannedJob(name, inputs=(), outputs=outputs, reason=reason))

    def add_marker(self, name: str, inputs: list[str], output: str) -> None:
        """Adds a job whose output only says that its inputs are there."""
        self.plan.add(PlannedJob(name, inputs, [output], lambda: None if Path(output).exists() else "it is missing"))

    def add_analysis(self, job: AnalysisJob, entries: list[dict] | None = None) -> None:
        """Adds a job of the analysis; `entries` are the runs of its `runs_plan`."""
        self.analysis_jobs[job.name] = job

        def reason() -> str | None:
            recipe = self.current_recipe(job, entries)
            return job.stale_reason(recipe, self.digest_of, self.record_of)

        self.plan.add(PlannedJob(job.name, job.all_inputs(entries), job.outputs, reason))

    def current_recipe(self, job: AnalysisJob, entries: list[dict] | None = None) -> records.Recipe:
        """The current recipe of the outputs of a job."""
        code, packages = self._digest_of_programs(job.programs, job.patterns), self._digest_of_packages(job.programs)
        return job.recipe(code, packages, self.digest_of, entries)

    def inputs(self, output: str, after: Callable[..., list[str]] = lambda wildcards: []) -> Callable:
        """An input function: the files that the job of an output reads. It forces the job if the job has to run.

        Times of files do not count, so files are marked ancient. But Snakemake runs nothing after a job whose outputs
        are all ancient, so files that another job is going to write are not marked. `after` returns further files, for
        which the job waits without reading them: they are marked unless the job runs."""

        def inputs_of_job(wildcards):
            self._replace_checks()
            job = self.plan.job_of(output.format(**wildcards))
            if reason := self.plan.reason(job):
                self._force(job, reason)
            inputs = [path if self.plan.is_remade(path) else ancient(path) for path in job.inputs]
            return inputs + [path if reason else ancient(path) for path in after(wildcards)]

        return inputs_of_job

    def recipe(self, output: str) -> Callable:
        """A function of wildcards for `params`: the recipe of the job of an output, for workflow.make."""
        return lambda wildcards: self.analysis_jobs[self.plan.job_of(output.format(**wildcards)).name].to_json()

    def _remember_digests(self) -> None:
        if self.digest_of.has_new_entries:
            digests.write_cache(CACHE_FILE, self.digest_of.known)

    def _replace_checks(self) -> None:
        """Keeps Snakemake from two checks of planned jobs. One is of times: a job may read files that seem newer than
        its outputs, for example after a clock was set back. The other looks for files that a killed job left. Our
        records find these, too. Snakemake would run the killed job, but nothing after it: its outputs are ancient."""
        if self._has_replaced_checks:
            return
        self._has_replaced_checks, dag = True, self._workflow.dag
        check, incomplete = getattr(dag, "check_output_mtime", None), getattr(dag, "incomplete_files", None)  # methods

        async def check_others(job, outputs) -> None:
            if not any(map(self.plan.makes, job.output)):
                await check(job, outputs)

        async def other_incomplete_files() -> list:
            return [file for file in await incomplete() if not self.plan.makes(file)]

        if check:
            dag.check_output_mtime = check_others
        if incomplete:
            dag.incomplete_files = other_incomplete_files

    def _force(self, job: PlannedJob, reason: str) -> None:
        """Forces a job as --forcerun does."""
        self._dag_set("forcefiles").update(job.outputs)
        kind = reason.partition(":")[0]  # one message of each kind: there may be thousands
        follows_another_job = reason.endswith(" runs")
        if kind not in self._logged_kinds and not follows_another_job and os.path.exists(job.outputs[0]):
            self._logged_kinds.add(kind)
            logger.info(f"{job.name} runs again, and maybe others: {reason}")

    def _is_forced(self, job: PlannedJob) -> bool:
        """Whether --forcerun or --forceall names a job, its rule, or one of its files."""
        name = self._rule_name(job.name.partition(" ")[0])  # a job's name is that of its rule, then wildcards
        forced_names = {rule.name for rule in self._dag_set("forcerules")}
        return name in forced_names or not self._dag_set("forcefiles").isdisjoint(job.outputs)

    def _dag_set(self, name: str) -> set:
        """Snakemake's set of this name. Raises WorkflowError if it has none."""
        forced = getattr(self._workflow.dag, name, None)
        if not isinstance(forced, set):
            raise WorkflowError(
                f"Snakemake {snakemake.__version__} does not keep {name} as a set, so stale results could not be made"
                " again; install a version that envs/requirements.txt admits"
            )
        return forced


def require_writable_metadata() -> None:
    """Raises WorkflowError if Snakemake cannot write its metadata; Snakemake itself would show a traceback."""
    folder = next(path for path in (CACHE_FILE.parent.absolute(), Path.cwd()) if path.exists())
    if not os.access(folder, os.W_OK):
        raise WorkflowError(
            f"cannot write to {folder}, which is read-only or belongs to another user, and Snakemake keeps its metadata"
            " there: make it writable, or copy the project and its results"
        )
