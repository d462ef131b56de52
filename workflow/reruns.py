"""Tells Snakemake which jobs to run: profile_grid/freshness/making.py decides, by content and not by time.

The only module that uses undocumented parts of Snakemake: the sets of files and rules that --forcerun fills, and two of
its checks.
"""

import atexit
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import snakemake
from snakemake.exceptions import WorkflowError
from snakemake.io import ancient
from snakemake.logging import logger

from profile_grid.freshness import digests, made
from profile_grid.freshness.making import Job, Making, Plan, digest_of_packages

MEMORY = Path(".snakemake", "digests.json")


class Reruns:
    """The jobs of a workflow, with the files that they read and write."""

    def __init__(self, workflow, root: Path):
        require_writable_notes()
        self._workflow = workflow
        self._rule_name = workflow.modifier.modify_rulename  # by which a module's rules are known to its user
        self._logged_kinds: set[str] = set()
        self._makings: dict[str, Making] = {}
        self._decides_alone = False
        self.digest_of = digests.FileDigests(digests.read_memory(MEMORY, lambda entry: len(entry) == 5))
        self.record_of = made.Records()
        self.plan = Plan(self._is_forced)
        self._code = cache(lambda programs, patterns: Making("", programs, (), patterns=patterns).code(root))
        self._packages = cache(lambda programs: digest_of_packages(root, programs))
        atexit.register(self._remember_digests)

    def add_measurement(self, name: str, outputs: list[str], reason: Callable[[], str | None]) -> None:
        """A job that measures: `reason` says why its results are stale."""
        self.plan.add([Job(name, (), outputs, reason)])

    def add_marker(self, name: str, inputs: list[str], output: str) -> None:
        """A job whose output only says that its inputs are there."""
        self.plan.add([Job(name, inputs, [output], lambda: None if Path(output).exists() else "it is missing")])

    def add(
        self, making: Making, entries: list[dict] | None = None, also: Callable[[], str | None] = lambda: None
    ) -> None:
        """A job of the analysis; `entries` are the runs that it reads, for one `of_runs`; `also` gives a further reason
        to run it, or None."""
        self._makings[making.name] = making
        inputs = making.all_inputs(entries)

        def reason() -> str | None:
            recipe = self.recipe_now(making, entries)
            return making.stale_reason(recipe, self.digest_of, self.record_of) or also()

        self.plan.add([Job(making.name, inputs, (*making.outputs, *making.folders), reason)])

    def recipe_now(self, making: Making, entries: list[dict] | None = None) -> made.Recipe:
        """The current recipe of the outputs of a job."""
        code, packages = self._code(making.programs, making.patterns), self._packages(making.programs)
        return making.recipe(code, packages, self.digest_of, entries)

    def makings(self) -> list[Making]:
        """The jobs of the analysis."""
        return list(self._makings.values())

    def files_made(self, besides: str) -> list[str]:
        """The files, and folders of files, that jobs of the analysis make, except those below the folder `besides`."""
        paths = (path for making in self.makings() for path in (*making.outputs, *making.folders))
        return sorted(path for path in paths if not path.startswith(besides))

    def inputs(self, output: str, after: Callable[..., list[str]] = lambda wildcards: []) -> Callable:
        """An input function: what the job of an output reads. A stale job is forced.

        The time of a file does not count, so it is ancient. But Snakemake runs nothing after a job whose outputs are
        all ancient, so an output of a job that is going to run is not. `after` are files that the job does not read and
        has to wait for: they are ancient unless the job runs."""

        def inputs_of_job(wildcards):
            self._decide_alone()
            job = self.plan.job_of(output.format(**wildcards))
            if reason := self.plan.reason(job):
                self._force(job, reason)
            read = [path if self.plan.is_remade(path) else ancient(path) for path in job.inputs]
            return read + [path if reason else ancient(path) for path in after(wildcards)]

        return inputs_of_job

    def recipe(self, output: str) -> Callable:
        """A function of wildcards for `params`: the recipe of the job of an output, for workflow.make."""
        return lambda wildcards: self._makings[self.plan.job_of(output.format(**wildcards)).name].to_json()

    def _remember_digests(self) -> None:
        """Keeps the digests for the next Snakemake."""
        if self.digest_of.is_new:
            digests.write_memory(MEMORY, self.digest_of.known)

    def _decide_alone(self) -> None:
        """Keeps Snakemake from judging planned jobs itself: they may read files that seem newer than their outputs, for
        example after a clock was set back; and what a killed job left counts by its record. Snakemake would run a job
        again that it has not marked as complete, but nothing after it, since its outputs are ancient."""
        if self._decides_alone:
            return
        self._decides_alone, dag = True, self._workflow.dag
        check, incomplete = getattr(dag, "check_output_mtime", None), getattr(dag, "incomplete_files", None)

        async def check_others(job, outputs) -> None:
            if not any(map(self.plan.makes, job.output)):
                await check(job, outputs)

        async def others_incomplete() -> list:
            return [file for file in await incomplete() if not self.plan.makes(file)]

        if check:
            dag.check_output_mtime = check_others
        if incomplete:
            dag.incomplete_files = others_incomplete

    def _force(self, job: Job, reason: str) -> None:
        """Forces a job as --forcerun does."""
        self._forced_files().update(job.outputs)
        kind = reason.partition(":")[0]
        is_logged = kind in self._logged_kinds or reason.endswith(" runs")  # one of each kind: there may be thousands
        if not is_logged and os.path.exists(job.outputs[0]):
            self._logged_kinds.add(kind)
            logger.info(f"{job.name} runs again, and maybe others: {reason}")

    def _is_forced(self, job: Job) -> bool:
        """Whether --forcerun or --forceall names a job, its rule, or one of its files."""
        rule = self._rule_name(job.name.partition(" ")[0])
        files = self._forced_files()
        return rule in {each.name for each in self._dag_set("forcerules")} or not files.isdisjoint(job.outputs)

    def _forced_files(self) -> set[str]:
        return self._dag_set("forcefiles")

    def _dag_set(self, name: str) -> set:
        forced = getattr(self._workflow.dag, name, None)
        if not isinstance(forced, set):
            raise WorkflowError(
                f"Snakemake {snakemake.__version__} does not keep {name} as a set, so stale results could not be made"
                " again; install a version that envs/requirements.txt admits"
            )
        return forced


def require_writable_notes() -> None:
    """Raises WorkflowError if Snakemake cannot write its metadata; Snakemake itself would show a traceback."""
    folder = next(path for path in (MEMORY.parent.absolute(), Path.cwd()) if path.exists())
    if not os.access(folder, os.W_OK):
        raise WorkflowError(
            f"cannot write to {folder}, which is read-only or belongs to another user, and Snakemake keeps its notes"
            " there: make it writable, or copy the project and its results"
        )
