"""A workflow of two measurements that take no time, and what a clean build of it would make, worked out by hand.

It uses the project's own planning (workflow/reruns.py), records (workflow/make.py) and account of loaded code. Only the
programs that measure and analyse are stand-ins: each output says all that it was made from.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Set as AbstractSet
from pathlib import Path

from tests.workflow.conftest import ROOT

LINKED = ("cs336_model", "kernel_recorder", "kernel_tables", "profile_grid", "profiles", "range_marks", "workflow")
RUNS = ("one", "two")
SNAKEFILE = """\
import json
import os
import sys
from functools import partial
from pathlib import Path

ROOT = Path(os.path.abspath(workflow.current_basedir.path))
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from profile_grid.freshness.imports import digest_of_code
from profile_grid.freshness.jobs import AnalysisJob
from workflow.job_environment import prepare_job_environment
from workflow.sources import stale_result_reason
from workflow.reruns import Reruns

SETTINGS = json.loads(Path("settings.json").read_text())
RUNS = SETTINGS["runs"]
prepare_job_environment(ROOT)
RERUNS = Reruns(workflow, ROOT)
SOURCES = digest_of_code(ROOT, ["scripts/measure.py"])
TABLES = [f"results/runs/{run}/table.txt" for run in RUNS]
DOCUMENTS = ("results/documents/first.txt", "results/documents/parts/second.txt")
SPECIFICATIONS = {
    run: json.dumps({"value": value, "program": {"run": run, "device": "cpu"}, "environment": ["GIVEN"]})
    for run, value in RUNS.items()
}
for run in RUNS:
    measured = [f"results/runs/{run}/timing.json", f"results/runs/{run}/capture.txt"]
    reason = partial(stale_result_reason, measured, SPECIFICATIONS[run], SOURCES, RERUNS.digest_of)
    RERUNS.add_measurement(f"measure {run}", measured, reason)
    made = tuple(f"results/runs/{run}/{name}" for name in ("table.txt", "details.txt"))
    command = ("scripts.table", f"results/runs/{run}", str(SETTINGS["class"]))
    RERUNS.add_analysis(AnalysisJob(f"table {run}", ("scripts/table.py",), made, tuple(measured), command))
command = ("scripts.merge", "results/merged.txt", *RUNS)
RERUNS.add_analysis(AnalysisJob("merge", ("scripts/merge.py",), ("results/merged.txt",), tuple(TABLES), command))
RERUNS.add_analysis(
    AnalysisJob("document", ("scripts/document.py",), DOCUMENTS, ("results/merged.txt",),
           ("scripts.document", "results/documents"), patterns=("templates/*.j2",))
)

rule all:
    default_target: True
    input: TABLES, "results/merged.txt", DOCUMENTS
    localrule: True

rule measure:
    input: RERUNS.inputs("results/runs/{run}/timing.json")
    output: result="results/runs/{run}/timing.json", capture="results/runs/{run}/capture.txt"
    params: specification=lambda wildcards: SPECIFICATIONS[wildcards.run], sources=SOURCES
    shell: "python -m cs336_model.program scripts.measure {params.specification:q} {params.sources} {output}"

rule table:
    input: RERUNS.inputs("results/runs/{run}/table.txt")
    output: "results/runs/{run}/table.txt"
    params: recipe=RERUNS.recipe("results/runs/{run}/table.txt")
    shell: "python -m workflow.make {params.recipe:q}"

rule merge:
    input: RERUNS.inputs("results/merged.txt")
    output: "results/merged.txt"
    params: recipe=RERUNS.recipe("results/merged.txt")
    shell: "python -m workflow.make {params.recipe:q}"

rule document:
    input: RERUNS.inputs(DOCUMENTS[0])
    output: DOCUMENTS
    params: recipe=RERUNS.recipe(DOCUMENTS[0])
    shell: "python -m workflow.make {params.recipe:q}"
"""
MODULE = """\
module small:
    snakefile: "Snakefile"

use rule * from small as small_*
"""
FILES = {
    "module.smk": MODULE,
    "Snakefile": SNAKEFILE,
    "scripts/measure.py": '''\
import json, os, platform, sys
from cs336_model.cpu import cpu_name
from cs336_model.program.loading import loaded_code
import model
VERSION = 0
specification, sources, output, capture = json.loads(sys.argv[1]), *sys.argv[2:]
variables = [os.environ.get(name) for name in ("GIVEN", "NCCL_TEST")]
measured = json.dumps([specification["value"], model.versions(), VERSION, variables])
loaded = loaded_code()
from pathlib import Path
from profile_grid.files import write_json, write_text
from profile_grid.freshness.environment import variables_record
from profile_grid.freshness.versions import host_record
from profile_grid.results.capture_identity import file_identity
machine = {"device": "cpu", "device_name": cpu_name(), "cpu_name": cpu_name(), "driver": None,
           "python": platform.python_version()}
write_text(Path(capture), measured)
write_json(Path(output), {
    "format": 7, "specification": specification, "sources": sources, "facts": {"measured": measured},
    "program": {"loaded": loaded, "loaded_distributions": {}, "machine": machine},
    "environment": variables_record(os.environ, specification["environment"]) | host_record(),
    "files": {"capture.txt": file_identity(Path(capture))},
})
''',
    "scripts/shared.py": "VERSION = 0\n",
    "scripts/table.py": '''\
import json, sys
from pathlib import Path
from scripts import shared
VERSION = 0
folder, kind = Path(sys.argv[1]), sys.argv[2]
measured = json.loads((folder / "timing.json").read_text())["facts"]["measured"]
text = json.dumps([measured, (folder / "capture.txt").read_text(), VERSION, shared.VERSION, int(kind)])
(folder / "table.txt").write_text(text)
(folder / "details.txt").write_text(text)
''',
    "scripts/merge.py": '''\
import json, sys
from pathlib import Path
VERSION = 0
tables = [Path("results/runs", run, "table.txt").read_text() for run in sys.argv[2:]]
Path(sys.argv[1]).write_text(json.dumps([tables, VERSION]))
''',
    "scripts/document.py": '''\
import json, sys
from pathlib import Path
from scripts import shared
VERSION = 0
folder = Path(sys.argv[1])
template = Path("templates/document.j2").read_text().partition("{#")[0]
text = json.dumps([Path("results/merged.txt").read_text(), VERSION, shared.VERSION, template])
for name in ("first.txt", "parts/second.txt"):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
''',
    "templates/document.j2": "0\n{# 0 #}",
    "model.py": '''\
import layers
try:
    import optional
except ImportError:
    optional = None
VERSION = 0
def versions():
    return [VERSION, layers.VERSION, getattr(optional, "VERSION", None)]
''',
    "layers.py": "VERSION = 0\n",
}  # fmt: skip
PROGRAMS = [name for name in FILES if name.endswith(".py")]
DOCUMENTS = [f"results/documents/{name}" for name in ("first.txt", "parts/second.txt")]
OUTPUTS = {  # of each job; those of a measurement first
    **{f"measure {run}": [f"results/runs/{run}/{name}" for name in ("timing.json", "capture.txt")] for run in RUNS},
    **{f"table {run}": [f"results/runs/{run}/{name}" for name in ("table.txt", "details.txt")] for run in RUNS},
    "merge": ["results/merged.txt"],
    "document": DOCUMENTS,
}
READERS = {**{f"measure {run}": [f"table {run}"] for run in RUNS}, **{f"table {run}": ["merge"] for run in RUNS}}
READERS |= {"merge": ["document"], "document": []}


class SmallWorkflow:
    """The workflow in a folder, with what was changed in it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.version = dict.fromkeys([*PROGRAMS, "templates/document.j2"], 0)
        self.settings = {"runs": dict.fromkeys(RUNS, 0), "class": 0}
        self.environment: dict[str, str] = {}
        self.optional: int | None = None  # the version of a module that the model imports if it is there
        self.hiding: int | None = None  # the version of a package that hides layers.py
        self.replaced = dict.fromkeys(RUNS, "")  # what was added to a result afterwards
        self.remarks = 0
        folder.mkdir(parents=True)
        for name in LINKED:
            (folder / name).symlink_to(ROOT / name)
        for name, text in FILES.items():
            self.write(name, text)
        self.write_settings()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def write_settings(self) -> None:
        self.write("settings.json", json.dumps(self.settings))

    def write_program(self, name: str) -> None:
        """A program or a template in its version, with remarks that do nothing."""
        if name.endswith(".j2"):
            self.write(name, f"{self.version[name]}\n{{# {self.remarks} #}}")
            return
        remark = f'"""Remark {self.remarks}."""\n# {self.remarks}\n'
        self.write(name, remark + FILES[name].replace("VERSION = 0", f"VERSION = {self.version[name]}"))

    def measured(self, run: str) -> str:
        """What a measurement of a run would give now."""
        layers = self.version["layers.py"] if self.hiding is None else self.hiding
        versions = [self.version["model.py"], layers, self.optional]
        variables = [self.environment.get(name) for name in ("GIVEN", "NCCL_TEST")]
        return json.dumps([self.settings["runs"][run], versions, self.version["scripts/measure.py"], variables])

    def clean_build(self) -> dict[str, str]:
        """What each output of the analysis would hold, made from the measurements that are there, or would be."""
        shared, text = self.version["scripts/shared.py"], {}
        tables = []
        for run in RUNS:
            fresh = f"measure {run}" not in self.stale_measurements()
            facts = self.measured(run) + (self.replaced[run] if fresh else "")
            table = [facts, self.measured(run), self.version["scripts/table.py"], shared, self.settings["class"]]
            tables.append(json.dumps(table))
            text |= dict.fromkeys(OUTPUTS[f"table {run}"], tables[-1])
        text["results/merged.txt"] = json.dumps([tables, self.version["scripts/merge.py"]])
        template = f"{self.version['templates/document.j2']}\n"
        document = [text["results/merged.txt"], self.version["scripts/document.py"], shared, template]
        return text | dict.fromkeys(DOCUMENTS, json.dumps(document))

    def stale_measurements(self) -> set[str]:
        """The measurements whose files are not what would be measured now."""
        return {f"measure {run}" for run in RUNS if not self._is_measured(run)}

    def _is_measured(self, run: str) -> bool:
        result, capture = (self.folder / path for path in OUTPUTS[f"measure {run}"])
        expected = self.measured(run)
        try:
            record = json.loads(result.read_text())
            return (
                record["facts"]["measured"] == expected + self.replaced[run]
                and record["specification"]["program"]["run"] == run
                and capture.read_text() == expected
            )
        except (OSError, ValueError):
            return False

    def would_change(self) -> set[str]:
        """The jobs of which a file on disk is not what a clean build makes."""
        built = self.clean_build()
        differs = {path for path, text in built.items() if self._text(path) != text}
        return self.stale_measurements() | {job for job, outputs in OUTPUTS.items() if differs & set(outputs)}

    def _text(self, path: str) -> str | None:
        file = self.folder / path
        return file.read_text() if file.is_file() else None

    def planned(self, snakemake, *arguments: str, at_least: AbstractSet[str] = frozenset()) -> set[str]:
        """The jobs that Snakemake plans, among which these must be."""
        planned = snakemake(self.folder, "--dry-run", *arguments, **self.environment)
        assert planned.status == 0, planned.output
        jobs = {job.removeprefix("small_") for job in planned.jobs} - {"all"}
        assert jobs >= at_least, planned.output
        return jobs

    def touch(self, snakemake, *arguments: str) -> None:
        """Marks all outputs as up to date, which fails if some are missing."""
        snakemake(self.folder, "--touch", "--cores", "1", *arguments, **self.environment)

    def run(self, snakemake, *arguments: str) -> None:
        """Runs what is planned."""
        done = snakemake(self.folder, "--cores", "2", *arguments, **self.environment)
        assert done.status == 0, done.output
        for job in done.jobs:
            rule, _, run = job.removeprefix("small_").partition(" ")
            if rule == "measure":
                self.replaced[run] = ""

    def copy(self, option: str) -> None:
        """Goes on in a copy of the folder, as `cp` with this option makes it."""
        target = self.folder.with_name(self.folder.name + "c")
        subprocess.run(["cp", option, self.folder, target], check=True)
        shutil.rmtree(self.folder)
        self.folder = target


def with_readers(jobs: set[str]) -> set[str]:
    """These jobs, and all that read what they make: whether that will differ is not known before they ran."""
    reached, waiting = set(), list(jobs)
    while waiting:
        job = waiting.pop()
        if job not in reached:
            reached.add(job)
            waiting += READERS[job]
    return reached


def older(path: Path) -> None:
    """Gives a file a time long before that of any other."""
    os.utime(path, (1, 1))
