"""Which jobs have to run: those whose outputs are not what would be made now, and those that read what such jobs make.

It knows nothing of Snakemake, which gets the answer from workflow/reruns.py.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Job:
    """One job: its name, what it reads and writes, and why its outputs are stale (None if they are not).

    `outputs` are all its files; the job is found by any of them. `reason` is called once.
    """

    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    reason: Callable[[], str | None]


class Plan:
    """The jobs of a study. `is_forced` says whether somebody asked for a job by force."""

    def __init__(self, is_forced: Callable[[Job], bool] = lambda job: False):
        self._is_forced = is_forced
        self._job_of: dict[str, Job] = {}
        self._reasons: dict[str, str | None] = {}

    def add(self, jobs: Iterable[Job]) -> None:
        """Adds jobs. Raises ValueError if two jobs write one file."""
        for job in jobs:
            for path in job.outputs:
                if self._job_of.setdefault(path, job) is not job:
                    raise ValueError(f"{path} is an output of {self._job_of[path].name} and of {job.name}")

    def job_of(self, path: str) -> Job:
        """The job that writes a file; KeyError if none does."""
        return self._job_of[path]

    def makes(self, path: str) -> bool:
        """Whether a job writes this file."""
        return path in self._job_of

    def is_remade(self, path: str) -> bool:
        """Whether the job that writes a file has to run."""
        maker = self._job_of.get(path)
        return maker is not None and self.reason(maker) is not None

    def reason(self, job: Job) -> str | None:
        """Why a job has to run; None if it does not."""
        if job.name not in self._reasons:
            self._reasons[job.name] = self._reason(job)
        return self._reasons[job.name]

    def _reason(self, job: Job) -> str | None:
        if self._is_forced(job):
            return "it was asked for by --force or --forcerun"
        for path in job.inputs:
            if self.is_remade(path):
                return f"{self._job_of[path].name} runs"
        try:
            return job.reason()
        except PermissionError as error:  # Snakemake will not overwrite the files of another user, and names them
            return f"a file may not be read: {error.filename}"
