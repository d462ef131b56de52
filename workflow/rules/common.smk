"""Shared by all: the runs of the grid, and the source files on which each job depends.

Which jobs run again is decided by content: RERUNS knows what each job is made from (workflow/reruns.py). A job of the
analysis depends on all that its program imports; a measurement only on what can change it, or an edit of the analysis
would cost hours of GPU.
"""

import gc
import json
import os
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profile_grid.study.catalogue import (
    MODULES_OF_TABLES,
    TABLES_OF_A_RUN,
    merged_of,
    question_of_figure,
    questions_asked,
    summaries_of,
    workloads_of,
)
from profile_grid.study.program import functions_named, program_of
from profile_grid.study.runs import (
    checked_config,
    grid_part,
    grid_plan,
    grid_runs,
    planned_rows,
    run_to_show,
    specification,
)
from profile_grid.study.schema import ConfigError, check_keys
from profile_grid.study.stage import GPU, OWN_RULES
from profile_grid.study.stages import BY_NAME, CAPTURE, NOT_ASKED, STAGES, TIMING
from profile_grid.study.schema import unusable_sources
from profile_grid.sharing.archive import BadArchive, read_manifest
from profile_grid.host.allocation import cores, host_megabytes, max_minutes
from profile_grid.freshness.digests import digest_of_settings, digest_of_text
from profile_grid.freshness.imports import (
    UnreadableSource,
    digest_of_code,
    files_of_module,
    imported_files,
    remember_sources,
)
from profile_grid.freshness.making import Making, NoSuchSource, matching
from workflow.leftovers import leftover_reason
from workflow.job_environment import count_measurements, in_allocation, longest_first, prepare_job_environment
from workflow.measurements import result_reason
from workflow.reruns import Reruns

PACKED = config.get("packed")
PACKED_MARKER = "packed.json"
try:
    for path in [*workflow.configfiles, *workflow.overwrite_configfiles]:
        check_keys(Path(path))
    checked_config(config)
    RUNS = {} if PACKED else grid_runs(config)
except ConfigError as error:
    raise WorkflowError(f"config.yaml: {error}")


def packed_manifest(archive):
    """What an archive holds, once the working folder has no results but those of archives."""
    if Path("results/grid.json").exists() and not Path("results", PACKED_MARKER).exists():
        raise WorkflowError(f"results/ holds other results; to read {archive}, name a folder: --directory theirs")
    try:
        return read_manifest(Path(archive))
    except FileNotFoundError:
        raise WorkflowError(
            f"no archive {os.path.abspath(archive)}: name it by its full path where --directory is given"
        )
    except (BadArchive, OSError) as error:
        raise WorkflowError(str(error))


MANIFEST = packed_manifest(PACKED) if PACKED else None
PLANNED = MANIFEST.runs if PACKED else planned_rows(config, RUNS)
WORKLOADS = workloads_of(PLANNED)
MERGED, SUMMARIES = merged_of(WORKLOADS), summaries_of(WORKLOADS)
CAPTURED = any(row[CAPTURE.status_column] != NOT_ASKED for row in PLANNED)
ASKED = questions_asked(PLANNED)
QUESTION_DOCUMENTS = [question.name for question in ASKED if question.has_document]
FIGURES = [name for question in ASKED for name in question.figures]
SPECIFICATIONS = {
    stage.name: {name: specification(config, run, stage) for name, run in RUNS.items() if stage in run.stages}
    for stage in STAGES
}
FIRST_ALONE = config | {TIMING.name: config.get(TIMING.name, {}) | {"accuracy": False}}  # what the others leave out
AGAIN_SPECIFICATIONS = {
    name: specification(FIRST_ALONE, run, TIMING) for name, run in RUNS.items() if TIMING in run.stages
}
IN_ALLOCATION = in_allocation()
prepare_job_environment(ROOT)
if ROOT == Path(workflow.basedir):  # else it may be a module, whose onstart is never called
    gc.disable()  # planning makes millions of objects and drops none: looking for dropped ones takes a sixth of its time
RERUNS = Reruns(workflow, ROOT)
FIRST = 10_000  # the priority of what goes before all measurements, which have about their seconds as theirs


wildcard_constraints:
    run="[A-Za-z0-9][A-Za-z0-9._-]*",


def of_questions(module, question="*"):
    """The files of this name in the folders of the questions: they are imported by the name that the catalogue gives."""
    found = sorted(ROOT.glob(f"profile_grid/questions/{question}/{module}.py"))
    return [os.path.relpath(path, ROOT) for path in found if not path.name.startswith("test_")]


STAGE_TABLES = [stage.file("tables") for stage in STAGES if stage.has_tables]
DECLARED_TABLES = [f"{module.replace('.', '/')}.py" for module in MODULES_OF_TABLES]


def files_of_tables(names):
    """The files of these tables."""
    return [f"results/tables/{name}.{suffix}" for name in names for suffix in ("csv", "parquet")]


def parquet_of(names):
    """The files of these tables from which programs read them."""
    return [f"results/tables/{name}.parquet" for name in names]


def flat(files):
    """The files in a list of lists."""
    return [path for each in files for path in (flat(each) if isinstance(each, list) else [each])]


LARGE_TABLES = [name for name in MERGED if name in ("steps", "warmup_steps", *TABLES_OF_A_RUN)]


def code_digest(programs, patterns=()):
    """A digest of these programs, of all of this checkout that they import, and of the files that match the patterns."""
    try:
        return digest_of_code(ROOT, {*imported_files(ROOT, *programs), *matching(ROOT, patterns)})
    except (UnreadableSource, NoSuchSource) as error:
        raise WorkflowError(f"{error}; nothing can be planned before that is corrected")


def measured_program(program):
    """The programs of this project that change a measurement: the benchmark, the model, functions that config.yaml names."""
    modules = [path for name in functions_named(program) for path in files_of_module(ROOT, name.partition(":")[0])]
    return ["cs336_model/program/benchmark.py", *modules]


def listed_sources(paths):
    """A digest of the files of the working folder that config.yaml lists; empty if it lists none."""
    for message in unusable_sources(Path.cwd(), paths):
        raise WorkflowError(f"config.yaml: {message}")
    return digest_of_code(Path.cwd(), paths) if paths else ""


MEASURED_PROGRAMS = {
    workload: code_digest([workload.program] if workload.program else measured_program(program_of(config)))
    for workload in {stage.workload for stage in STAGES}
}
LISTED_SOURCES = listed_sources(program_of(config)["sources"])


def of_every_run(name_of):
    """The files that `name_of` a stage names, of every stage of every run in the grid that has one."""
    names = {stage: name_of(stage) for stage in STAGES}
    return [f"results/runs/{run}/{names[stage]}" for run, one in RUNS.items() for stage in one.stages if names[stage]]


def result_of(stage):
    """The file that says how a stage of a run ended."""
    return stage.result


def read_by(stage):
    """The results of other stages, and their files, that the tables of a run are made from besides those of this one."""
    others = [BY_NAME[name] for name in stage.tables_of_a_run.reads]
    return [name for other in others for name in (other.result, *other.files)]


def status_of(stage):
    """The file that says whether the tables are complete which a run has from a stage; None without such tables."""
    return stage.tables_of_a_run and stage.tables_of_a_run.status_file


def stage_sources(stage):
    """A digest of the code whose change makes the results of a stage stale."""
    job = digest_of_code(ROOT, matching(ROOT, (stage.file("measure"), *stage.sources, "workflow/scripts/measure.py")))
    return digest_of_settings([MEASURED_PROGRAMS[stage.workload], job, LISTED_SOURCES])


SOURCES = {stage.name: stage_sources(stage) for stage in STAGES}


def add_measurement(stage, job, folder, specification):
    """Adds the job that measures a stage of a run into a folder."""
    outputs = [f"{folder}/{name}" for name in (stage.result, *stage.files)]
    reason = result_reason(outputs, specification, SOURCES[stage.name], RERUNS.digest_of)
    RERUNS.add_measurement(job, outputs, reason)


def add_tables_of_run(stage, run):
    """Adds the job that makes the tables of a run from what a stage left."""
    of_run, folder = stage.tables_of_a_run, f"results/runs/{run}"
    RERUNS.add(
        Making(
            f"tables_of_{stage.name} {run}",
            programs=("workflow/scripts/run_tables.py", stage.file("tables")),
            patterns=of_run.sources,
            settings=digest_of_settings({key: config.get(key, []) for key in of_run.own_rules}),
            inputs=tuple(f"{folder}/{name}" for name in (stage.result, *stage.files, *read_by(stage))),
            outputs=tuple(f"{folder}/{name}" for name in (of_run.status_file, *of_run.files)),
        )
    )


for run_name, run in RUNS.items():
    for stage in run.stages:
        add_measurement(
            stage, f"{stage.name} {run_name}", f"results/runs/{run_name}", SPECIFICATIONS[stage.name][run_name]
        )
        if stage.tables_of_a_run:
            add_tables_of_run(stage, run_name)


def results_of_round(number):
    """The results of every run in one round."""
    folder = "results/runs/{run}" if number == 1 else f"results/processes/{number}/{{run}}"
    return expand(f"{folder}/{TIMING.result}", run=AGAIN_SPECIFICATIONS)


def told(stage):
    """What a job of this stage is told, by wildcards."""
    return lambda wildcards: SPECIFICATIONS[stage.name][wildcards.run]


def gpus_of(stage):
    """How many GPUs a job of this stage takes, by wildcards; none beside those of the allocation that it runs in."""
    takes = stage.needs == GPU and config["device"] != "cpu" and not IN_ALLOCATION
    return lambda wildcards: RUNS[wildcards.run]["gpus"] if takes else 0


def group_of_run(wildcards):
    """The group of a run's jobs: one name for all runs on as many GPUs. Snakemake makes one job of what is connected, so
    of a run, or with `--group-components gpus_1=8` of eight; it never joins groups with different names."""
    return f"gpus_{RUNS[wildcards.run]['gpus']}"


def cores_of_job(wildcards):
    """The cores that a scheduler is asked for; -1, for no question, in the allocation that it gave: there the parts of
    a job would ask for the sum of what they take after each other."""
    return -1 if IN_ALLOCATION else cores(RUNS[wildcards.run]["gpus"])


def host_memory_mb(stage):
    """The host's memory that a job of this stage may take, by wildcards: where a scheduler asks for it."""
    return lambda wildcards: host_megabytes(json.loads(told(stage)(wildcards))["program"])


OWN_RULES_TOLD = json.dumps({key: config.get(key, []) for key in OWN_RULES})
FORMATS = config.get("formats", ["markdown"])


def document_sources(document):
    """The modules of the question that a document answers, or of all."""
    question = "*" if document == "answers" else document
    return of_questions("document", question)
