"""A study of four jobs whose outputs say all that made them, so that a clean build can be worked out by hand."""

import json
import os
import shutil
from pathlib import Path

from profile_grid.freshness.digests import FileDigests
from profile_grid.freshness.imports import forget_imports
from profile_grid.freshness.jobs import AnalysisJob, JobPlan, PlannedJob, digest_of_packages, digest_of_programs
from profile_grid.freshness.records import Recipe, Records, remove_records, write_records

# name: the program, the keys of the settings, inputs, outputs
JOBS = {
    "left": ("left.py", ("a",), ("raw/one",), ("made/left",)),
    "right": ("right.py", ("b",), ("raw/two",), ("made/right", "made/right2")),
    "both": ("both.py", (), ("made/left", "made/right"), ("made/deep/both",)),
    "end": ("end.py", ("a",), ("made/deep/both",), ("end",)),
}
PROGRAMS = {"left.py": "import shared\n", "right.py": "", "both.py": "import shared\n", "end.py": "", "shared.py": ""}
IMPORTED = {program: (program, *(["shared.py"] if text else [])) for program, text in PROGRAMS.items()}


class SmallStudy:
    """The study in a folder. `version` counts the edits of each program that change what it does."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.settings = {"a": 0, "b": 0}
        self.version = dict.fromkeys(PROGRAMS, 0)
        self.remarks = 0
        self.known = {}  # the digests that one plan remembers for the next
        for name in ("raw", "code"):
            (folder / name).mkdir(parents=True)
        self.write("raw/one", "1")
        self.write("raw/two", "2")
        for program in PROGRAMS:
            self.write_program(program)

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def write_program(self, program: str) -> None:
        """The program as it is now: a docstring and a comment that say nothing, its imports, its version."""
        text = f'"""{self.remarks}"""\n{PROGRAMS[program]}# {self.remarks}\nVERSION = {self.version[program]}\n'
        self.write(f"code/{program}", text)

    def move_to(self, folder: Path) -> None:
        """The study in another folder: copied, so every file has another inode and other times."""
        shutil.copytree(self.folder, folder, copy_function=shutil.copyfile)
        self.folder = folder

    def job(self, name: str) -> AnalysisJob:
        program, keys, inputs, outputs = JOBS[name]
        command = (program, *(f"{key}={self.settings[key]}" for key in keys))
        return AnalysisJob(name, (program,), outputs, inputs, command)

    def clean_build(self) -> dict[str, str]:
        """What every output would hold if all jobs ran now, by the path of the output."""
        text = {path: (self.folder / path).read_text() for path in ("raw/one", "raw/two")}
        for program, keys, inputs, outputs in JOBS.values():
            code = [self.version[each] for each in IMPORTED[program]]
            values = [self.settings[key] for key in keys]
            for output in outputs:
                text[output] = json.dumps([output, code, values, [text[path] for path in inputs]])
        return {path: content for path, content in text.items() if not path.startswith("raw")}

    def would_change(self) -> set[str]:
        """The jobs of which an output on disk is not what a clean build makes."""
        files = {path: self.folder / path for path in self.clean_build()}
        wrong = {
            path
            for path, content in self.clean_build().items()
            if not files[path].exists() or files[path].read_text() != content
        }
        return {name for name, (*_, outputs) in JOBS.items() if wrong & set(outputs)}

    def plan(self) -> JobPlan:
        """The plan of a new process in the folder, which has to be the working folder."""
        forget_imports()
        digest_of, record_of, plan = FileDigests(self.known), Records(), JobPlan()
        self.known = digest_of.known

        def reason(job: AnalysisJob):
            return lambda: job.stale_reason(self.recipe(job, digest_of), digest_of, record_of)

        for job in map(self.job, JOBS):
            plan.add(PlannedJob(job.name, job.inputs, job.outputs, reason(job)))
        return plan

    def recipe(self, job: AnalysisJob, digest_of: FileDigests) -> Recipe:
        code = self.folder / "code"
        digests = digest_of_programs(code, job.programs, job.patterns), digest_of_packages(code, job.programs)
        return job.recipe(*digests, digest_of)

    def planned(self) -> set[str]:
        """The jobs that the plan runs."""
        plan = self.plan()
        return {name for name, (*_, outputs) in JOBS.items() if plan.reason(plan.job_of(outputs[0]))}

    def run(self, names: set[str]) -> None:
        """Runs jobs as workflow.make does, in their order."""
        for name in (name for name in JOBS if name in names):
            job, digest_of = self.job(name), FileDigests()
            forget_imports()
            recipe = self.recipe(job, digest_of)
            remove_records(job.outputs)
            built = self.clean_build()
            for output in job.outputs:
                self.write(output, built[output])
            write_records({output: digest_of(output) for output in job.outputs}, recipe)


def older(path: Path) -> None:
    """Gives a file a time long before that of any other."""
    os.utime(path, (1, 1))
