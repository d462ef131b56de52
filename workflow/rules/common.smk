"""Shared by all: the runs of the grid, and the source files on which each stage depends.

Snakemake sees neither imported modules nor templates, so every job has its sources as inputs; where there is a job for
every run, their digest as a parameter, since Snakemake looks at every input of every job (twice the time to plan 600
runs). A job of the analysis depends on all that its program imports; a measurement only on what can change it, or a
typing mistake in the analysis would cost hours of GPU.
"""

import gc
import json
import os
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profile_grid.study.catalogue import (
    MERGED,
    MODULES_OF_TABLES,
    SUMMARIES,
    TABLES_OF_A_RUN,
    question_of_figure,
    questions_asked,
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
from profile_grid.study.schema import ConfigError
from profile_grid.study.stage import GPU
from profile_grid.study.stages import BY_NAME, OWN_RULES, STAGES, SWEEP, TIMING
from profile_grid.study.sweep import is_sweep, row_specification, sweep_part, sweep_plan, sweep_rows
from profile_grid.study.sweep_dimensions import TABLES_OF_SWEEP
from profile_grid.study.unusable import unusable_sources
from profile_grid.sharing.archive import BadArchive, read_manifest
from profile_grid.measuring.allocation import cores, host_megabytes, minutes_at_most
from profile_grid.measuring.freshness import digest_of_rules
from workflow.import_statements import UnreadableSource, remember_imports
from workflow.imported_files import digest_of_files, files_of_module, imported_files
from workflow.job_environment import count_measurements, in_allocation, longest_first, prepare_job_environment
from workflow.staleness import Staleness, content_reason, missing_reason, result_reason, tables_reason

PACKED = config.get("packed")
PACKED_MARKER = "packed.json"
try:
    ROWS = sweep_rows(config) if is_sweep(checked_config(config)) and not PACKED else {}
    RUNS = {} if ROWS or PACKED else grid_runs(config)
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
SWEPT = MANIFEST.of_sweep if PACKED else bool(ROWS)
ASKED = questions_asked(MANIFEST.runs if PACKED else planned_rows(config, RUNS))
QUESTION_DOCUMENTS = [question.name for question in ASKED if question.has_document]
FIGURES = [name for question in ASKED for name in question.figures]
SPECIFICATIONS = {
    stage.name: {name: specification(config, run, stage) for name, run in RUNS.items() if stage in run.stages}
    for stage in STAGES
}
FIRST_ALONE = config | {TIMING.name: config.get(TIMING.name, {}) | {"accuracy": False}}  # what the others leave out
AGAIN_SPECIFICATIONS = {name: specification(FIRST_ALONE, run, TIMING) for name, run in RUNS.items()}
IN_ALLOCATION = in_allocation()
prepare_job_environment(ROOT)
if ROOT == Path(workflow.basedir):  # else it may be a module, whose onstart is never called
    gc.disable()  # planning makes millions of objects and drops none: looking for dropped ones takes a sixth of its time
STALENESS = Staleness(workflow)
FIRST = 10_000  # the priority of what goes before all measurements, which have about their seconds as theirs


wildcard_constraints:
    run="[A-Za-z0-9][A-Za-z0-9._-]*",


def sources(*patterns):
    """The files of this checkout that match, in a fixed order, relative to the working folder: no path of this machine."""
    found = {pattern: sorted(ROOT.glob(pattern)) for pattern in patterns}
    for pattern in (pattern for pattern, paths in found.items() if not paths):
        raise WorkflowError(f"no file of {ROOT} matches {pattern}: mend program.sources in config.yaml, or the rules")
    return [os.path.relpath(path) for paths in found.values() for path in paths]


def program_sources(*programs):
    """The files of these programs and all of this checkout that they import."""
    try:
        return sources(*imported_files(ROOT, *programs))
    except UnreadableSource as error:
        raise WorkflowError(f"{error}; nothing can be planned before this file is mended")


def file_of(target):
    """The file of the module that a "module:function" names."""
    return f"{target.partition(':')[0].replace('.', os.sep)}.py"


def of_questions(module, question="*"):
    """The files of this name in the folders of the questions: they are imported by the name that the catalogue gives."""
    found = sorted(ROOT.glob(f"profile_grid/questions/{question}/{module}.py"))
    return [os.path.relpath(path, ROOT) for path in found if not path.name.startswith("test_")]


STAGE_TABLES = [file_of(stage.tables) for stage in STAGES if stage.tables]
DECLARED_TABLES = [file_of(module) for module in MODULES_OF_TABLES]
LARGE_TABLES = ["steps", "warmup_steps", *TABLES_OF_A_RUN]


def digest(paths):
    """One value that changes when the name or the content of one of these files does."""
    return digest_of_files(ROOT, [os.path.relpath(path, ROOT) for path in paths])


def measured_program(program):
    """What of this project changes a measurement: the benchmark, the model and functions that config.yaml names."""
    modules = [path for name in functions_named(program) for path in files_of_module(ROOT, name.partition(":")[0])]
    return program_sources("cs336_model/program/benchmark.py", *modules)


def own_sources(paths):
    """What changes with the files of the working folder that config.yaml lists; nothing where it lists none."""
    for message in unusable_sources(Path.cwd(), paths):
        raise WorkflowError(f"config.yaml: {message}")
    return digest_of_files(Path.cwd(), paths) if paths else ""


MEASURED_PROGRAM = measured_program(program_of(config))
OWN_SOURCES = own_sources(program_of(config)["sources"])


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
    return [f"results/runs/{{run}}/{name}" for one in others for name in (one.result, *one.files)]


def status_of(stage):
    """The file that says whether the tables are whole which a run has from a stage; None without such tables."""
    return stage.tables_of_a_run and stage.tables_of_a_run.status_file


def stage_sources(stage):
    """The files whose change makes the results of a stage stale."""
    return MEASURED_PROGRAM + sources(file_of(stage.runs), *stage.sources, "workflow/scripts/measure.py")


SOURCES = {stage.name: digest(stage_sources(stage)) + OWN_SOURCES for stage in STAGES}


def measured_again(stage):
    """No input, but a job for a result that is there and is not what would be measured now."""

    def nothing(wildcards):
        reason = result_reason(SPECIFICATIONS[stage.name][wildcards.run], SOURCES[stage.name], stage.files)
        return STALENESS.again_if(f"results/runs/{wildcards.run}/{stage.result}", reason)

    return nothing


def results_of_round(wildcards):
    """The results of every run in one round."""
    number = int(wildcards.number)
    folder = "results/runs/{run}" if number == 1 else f"results/processes/{number}/{{run}}"
    return expand(f"{folder}/{TIMING.result}", run=RUNS)


def timed_again(wildcards):
    """No input, but a job for a result that is there and is not what would be measured now."""
    reason = result_reason(AGAIN_SPECIFICATIONS[wildcards.run], SOURCES[TIMING.name], TIMING.files)
    return STALENESS.again_if(f"results/processes/{wildcards.number}/{wildcards.run}/{TIMING.result}", reason)


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


OWN = {key: config.get(key, []) for key in OWN_RULES}
OWN_RULES_TOLD = json.dumps(OWN)
OWN_RULES_DIGEST = digest_of_rules(OWN)


def tables_digest(stage):
    """A digest of all that the job which makes a run's tables imports."""
    of_run = stage.tables_of_a_run
    programs = [file_of(target) for target in (of_run.made_by, of_run.texts_by) if target]
    return digest(program_sources("workflow/scripts/run_tables.py", *programs) + sources(*of_run.sources))


TABLE_SOURCES = {stage.name: tables_digest(stage) for stage in STAGES if stage.tables_of_a_run}


MAKERS = json.dumps({"results": SOURCES, "tables": TABLE_SOURCES, "own_rules": OWN_RULES_DIGEST})


def tables_again(stage):
    """No input, but a job for tables that are there and are not what would be made now."""

    def nothing(wildcards):
        folder = f"results/runs/{wildcards.run}"
        read_too = [f"{folder}/{BY_NAME[name].result}" for name in stage.tables_of_a_run.reads]
        made = (TABLE_SOURCES[stage.name], OWN_RULES_DIGEST)
        reason = tables_reason(f"{folder}/{stage.result}", read_too, *made, stage.tables_of_a_run.files)
        return STALENESS.again_if(f"{folder}/{stage.tables_of_a_run.status_file}", reason)

    return nothing


FORMATS = config.get("formats", ["markdown"])


def document_sources(document):
    """The modules of the question that a document answers, or of all."""
    question = "*" if document == "answers" else document
    return of_questions("document", question)


def table_documents_again(wildcards):
    """No input, but a job where a table was deleted: Snakemake does not look into a folder that a job made."""
    for name in FORMATS:
        STALENESS.again_if(f"results/tables/{name}", missing_reason("contents.txt"))
    return []
