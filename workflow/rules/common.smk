"""Shared by all rules: the runs of the grid, and the jobs of each run.

Which jobs run again is decided by content: RERUNS knows what each job is made from (workflow/reruns.py).
"""

import atexit
import gc
import json
import os
from functools import partial
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profile_grid.freshness.imports import remember_sources
from profile_grid.freshness.jobs import AnalysisJob
from profile_grid.study import catalogue
from profile_grid.study.workloads import program_of
from profile_grid.study.runs import (
    checked_config,
    grid_settings_json,
    grid_plan,
    grid_runs,
    planned_rows,
    settings_of,
    shown_run_name,
    specification_json,
)
from profile_grid.study.schema import ConfigError, check_keys
from profile_grid.study.stages import CAPTURE, NOT_ASKED, STAGES, TIMING
from workflow import paths
from workflow.job_environment import hand_over_measurements, in_allocation, prioritize_longest, prepare_job_environment
from workflow.reruns import Reruns
from workflow.resources import JobResources, max_minutes
from workflow.sources import measurement_digests, question_files, stale_result_reason

try:
    for path in [*workflow.configfiles, *workflow.overwrite_configfiles]:
        check_keys(Path(path))
    checked_config(config)
    RUNS = grid_runs(config)
except ConfigError as error:
    raise WorkflowError(f"config.yaml: {error}")


PLANNED_RUNS = planned_rows(config, RUNS)
WORKLOADS = catalogue.workloads_of(PLANNED_RUNS)
MERGED_NAMES, SUMMARY_NAMES = catalogue.merged_names(WORKLOADS), catalogue.summary_names(WORKLOADS)
# left out of Snakemake's report
LARGE_TABLES = [name for name in MERGED_NAMES if name in ("steps", "warmup_steps", *catalogue.RUN_TABLE_NAMES)]
HAS_CAPTURES = any(row[CAPTURE.status_column] != NOT_ASKED for row in PLANNED_RUNS)
QUESTIONS = catalogue.questions_asked(PLANNED_RUNS)
DOCUMENTS = ["answers", *(question.name for question in QUESTIONS if question.has_document)]
FIGURES = [name for question in QUESTIONS for name in question.figures]
# modules that are imported by name, so that no scan of imports finds them
STAGE_TABLE_SOURCES = [stage.module_path("tables") for stage in STAGES]
TABLE_SOURCES = [f"{module.replace('.', '/')}.py" for module in catalogue.MODULES_OF_TABLES]
SPECIFICATIONS = {  # as JSON, by stage and run
    stage.name: {name: specification_json(config, run, stage) for name, run in RUNS.items() if stage in run.stages}
    for stage in STAGES
}
PROCESS_COUNT = settings_of(config, TIMING)["processes"] if SPECIFICATIONS[TIMING.name] else 1  # that time each run
RESOURCES = JobResources(RUNS, SPECIFICATIONS, has_gpus=config["device"] != "cpu", in_allocation=in_allocation())
prepare_job_environment(ROOT)
atexit.register(gc.freeze)  # else Python looks at all objects once more at its end
if ROOT == Path(workflow.basedir):  # else it may be a module, whose onstart is never called
    gc.disable()  # planning makes millions of objects and drops none, and collecting takes a sixth of its time
RERUNS = Reruns(workflow, ROOT)
GRID_PLAN, PROVENANCE = "results/grid.json", "results/tables/provenance.json"
SHOWN_RUN = shown_run_name(RUNS)
TIMELINE, TRACE = "results/page/timeline.parquet", "results/page/trace.json.gz"
TIMELINE_FILES = ["results/page/timeline.csv", TIMELINE, TRACE] if HAS_CAPTURES else []
SOURCE_DIGESTS = measurement_digests(ROOT, config)
SCRIPT_RUNNER = "workflow/scripts/__main__.py"
FIRST_PRIORITY = 10_000  # of what goes before all measurements, whose priority is their estimated time in seconds


wildcard_constraints:
    run="[A-Za-z0-9][A-Za-z0-9._-]*",


def add_measurement(stage, job_name, folder, specification_text):
    """Adds the job that measures a stage of a run into a folder, by its specification as JSON."""
    outputs = [f"{folder}/{name}" for name in (stage.result_file, *stage.files)]
    sources_digest, time_limit_s = SOURCE_DIGESTS[stage.name], config["time_limit_s"]
    reason = partial(stale_result_reason, outputs, specification_text, sources_digest, RERUNS.digest_of, time_limit_s)
    RERUNS.add_measurement(job_name, outputs, reason)


def add_tables_of_run(stage, run_name):
    """Adds the job that makes the tables of a run from the result of a stage."""
    tables, folder = stage.tables_of_a_run, f"results/runs/{run_name}"
    custom_rules = json.dumps({key: config.get(key, []) for key in tables.rule_keys})
    RERUNS.add_analysis(
        AnalysisJob(
            f"tables_of_{stage.name} {run_name}",
            programs=(SCRIPT_RUNNER, "workflow/scripts/run_tables.py", stage.module_path("tables")),
            patterns=tables.sources,
            command=(
                "workflow.scripts",
                "run_tables",
                f"--stage={stage.name}",
                f"--folder={folder}",
                f"--own-rules={custom_rules}",
            ),
            inputs=tuple(f"{folder}/{name}" for name in paths.inputs_of_tables(stage)),
            outputs=tuple(f"{folder}/{name}" for name in (tables.status_file, *tables.files)),
        )
    )


ANALYSIS_RULES = []  # (job, message, files to wait for, priority): analysis.smk makes a rule of each


def add_analysis(
    name,
    message,
    arguments,
    outputs=(),
    inputs=(),
    programs=(),
    after=(),
    priority=0,
    entries=None,
    **settings,
):
    """Adds a job: the script of its name in workflow/scripts, run with these arguments. It waits for the files in
    `after`. The parameters `programs`, `inputs`, `outputs` and `settings` are those of AnalysisJob, `entries` is
    that of RERUNS.add_analysis."""
    job = AnalysisJob(
        name,
        programs=(SCRIPT_RUNNER, f"workflow/scripts/{name}.py", *programs),
        command=("workflow.scripts", name, *arguments),
        outputs=tuple(outputs),
        inputs=tuple(inputs),
        **settings,
    )
    RERUNS.add_analysis(job, entries)
    ANALYSIS_RULES.append((job, message, list(after), priority))


def in_report(path):
    """An output, with its place in Snakemake's report if it is a document, a figure or a small table."""
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    if folder == "results/answers":
        return report(path, caption="../report/answer.rst", category="Documents", labels={"document": stem})
    if path == "results/report.html":
        return report(path, caption="../report/page.rst", category="Documents", labels={"document": "the page"})
    if suffix == ".svg":
        return report(path, caption="../report/figure.rst", category="Figures", labels={"figure": stem})
    if folder == "results/tables" and suffix == ".csv" and stem not in LARGE_TABLES:
        return report(path, caption="../report/table.rst", category="Tables")
    return path


def specification_of(stage):
    """A function of wildcards: the specification of a job of this stage, as JSON."""
    return lambda wildcards: SPECIFICATIONS[stage.name][wildcards.run]


for run_name, run in RUNS.items():
    for stage in run.stages:
        add_measurement(
            stage,
            job_name=f"{stage.name} {run_name}",
            folder=f"results/runs/{run_name}",
            specification_text=SPECIFICATIONS[stage.name][run_name],
        )
        if stage.tables_of_a_run:
            add_tables_of_run(stage, run_name)
