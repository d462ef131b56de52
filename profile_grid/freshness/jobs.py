"""The jobs of the analysis, with the code and settings that make their outputs, and the plan of which have to run.

The plan and the job compute the same recipe of the outputs, so that they can be compared. Jobs whose outputs are stale
have to run, and so do those that read the outputs of such jobs. Snakemake gets the answer from workflow/reruns.py.
"""

import glob
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from profile_grid.freshness.digests import FileDigests, digest_of_settings
from profile_grid.freshness.imports import digest_of_code, imported_files, imported_packages
from profile_grid.freshness.records import UNKNOWN, Recipe, Records, stale_reason
from profile_grid.freshness.versions import is_planners_python, present_version
from profile_grid.study.stages import STAGE_BY_NAME

DISTRIBUTION_BY_PACKAGE = {  # by the name that is imported
    "adbc_driver_sqlite": "adbc-driver-sqlite",
    "altair": "altair",
    "itables": "itables",
    "jinja2": "Jinja2",
    "markdown_it": "markdown-it-py",
    "numpy": "numpy",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "scipy": "scipy",
    "vl_convert": "vl-convert-python",
}


def digest_of_programs(root: Path, programs: tuple[str, ...], patterns: tuple[str, ...]) -> str:
    """A digest of the code of a job's programs and patterns below `root`. Raises UnreadableSource or NoSuchSource."""
    return digest_of_code(root, [*imported_files(root, *programs), *matching_files(root, patterns)])


def digest_of_packages(root: Path, programs: tuple[str, ...]) -> str:
    """A digest of the versions of those packages of DISTRIBUTION_BY_PACKAGE that programs below `root` import; UNKNOWN
    in another Python than Snakemake's, whose packages Snakemake cannot see when it plans. Raises UnreadableSource."""
    if not is_planners_python():
        return UNKNOWN
    packages = imported_packages(root, *programs) & DISTRIBUTION_BY_PACKAGE.keys()
    return digest_of_settings({package: present_version(DISTRIBUTION_BY_PACKAGE[package]) for package in packages})


class NoSuchSource(ValueError):
    """A pattern of source files matches nothing; the message names it."""


@dataclass(frozen=True)
class AnalysisJob:
    """One job. Its programs and patterns are relative to the project's folder, other paths to the working folder."""

    name: str
    programs: tuple[str, ...]  # files; they and all that they import count as its code
    outputs: tuple[str, ...]
    inputs: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # the module that runs, and its arguments, which count as settings
    patterns: tuple[str, ...] = ()  # of further files that count as its code
    runs_plan: str | None = None  # JSON that lists runs, whose files are inputs, too: too many for a command line

    @classmethod
    def from_json(cls, text: str) -> "AnalysisJob":
        """The job that `to_json` wrote."""
        values = json.loads(text)
        return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in values.items()})

    def to_json(self) -> str:
        """The job as one line for a command."""
        return json.dumps(asdict(self), sort_keys=True)

    def recipe(
        self, code_digest: str, packages_digest: str, digest_of: FileDigests, entries: list[dict] | None = None
    ) -> Recipe:
        """What makes the outputs now. `code_digest` is from `digest_of_programs`, `packages_digest` from
        `digest_of_packages`. `entries` are the runs of the plan; None reads them from its file."""
        inputs_digest = digest_of.of_all(self.all_inputs(entries))
        return Recipe(code_digest, digest_of_settings(self.command), packages_digest, inputs_digest)

    def all_inputs(self, entries: list[dict] | None = None) -> tuple[str, ...]:
        """The files that the job reads, including those of the runs of `runs_plan`; `entries` as for `recipe`."""
        if self.runs_plan is None:
            return self.inputs
        if entries is None:
            entries = json.loads(Path(self.runs_plan).read_text())["runs"]
        return (*self.inputs, *files_of_runs(entries))

    def stale_reason(self, recipe: Recipe, digest_of: FileDigests, record_of: Records) -> str | None:
        """Why the outputs are not what the recipe makes; None if they are."""
        return stale_reason({path: record_of(path) for path in self.outputs}, recipe, digest_of)


def files_of_runs(entries: list[dict]) -> list[str]:
    """The files from which the runs of a plan are merged: the result of each stage, and the status of its tables."""
    stages = ((entry["run"], STAGE_BY_NAME[name]) for entry in entries for name in entry["specifications"])
    files = ((run, file) for run, stage in stages for file in (stage.result_file, stage.status_file))
    return [f"results/runs/{run}/{file}" for run, file in files if file]


def matching_files(root: Path, patterns: tuple[str, ...]) -> list[str]:
    """The files below `root` that match, relative to it. Raises NoSuchSource."""
    paths = []
    for pattern in patterns:
        matches = [path for path in glob.glob(pattern, root_dir=root) if os.path.isfile(root / path)]
        if not matches:
            raise NoSuchSource(f"no file of {root} matches {pattern}")
        paths += sorted(matches)
    return paths


@dataclass(frozen=True)
class PlannedJob:
    """A job of the analysis, or a measurement."""

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]  # all files that it writes; the job is found by any of them
    reason: Callable[[], str | None]  # returns why its outputs are stale, None if they are not; called at most once


class JobPlan:
    """Which jobs of a study have to run, and why. `is_forced` returns whether the user forces a job."""

    def __init__(self, is_forced: Callable[[PlannedJob], bool] = lambda job: False):
        self._is_forced = is_forced
        self._job_by_output: dict[str, PlannedJob] = {}
        self._reasons: dict[str, str | None] = {}

    def add(self, job: PlannedJob) -> None:
        """Adds a job. Raises ValueError if another job writes one of its files."""
        for path in job.outputs:
            if self._job_by_output.setdefault(path, job) is not job:
                raise ValueError(f"{path} is an output of {self._job_by_output[path].name} and of {job.name}")

    def job_of(self, path: str) -> PlannedJob:
        """The job that writes a file; KeyError if none does."""
        return self._job_by_output[path]

    def makes(self, path: str) -> bool:
        """Whether a job writes this file."""
        return path in self._job_by_output

    def is_remade(self, path: str) -> bool:
        """Whether the job that writes a file has to run."""
        maker = self._job_by_output.get(path)
        return maker is not None and self.reason(maker) is not None

    def reason(self, job: PlannedJob) -> str | None:
        """Why a job has to run; None if it does not."""
        if job.name not in self._reasons:
            self._reasons[job.name] = self._reason(job)
        return self._reasons[job.name]

    def _reason(self, job: PlannedJob) -> str | None:
        if self._is_forced(job):
            return "it was asked for by --force or --forcerun"
        for path in job.inputs:
            if self.is_remade(path):
                return f"{self._job_by_output[path].name} runs"  # so this input will change
        try:
            return job.reason()
        except PermissionError as error:  # the job runs, so that Snakemake stops, and names the other user's files
            return f"a file may not be read: {error.filename}"
