"""The source files on which jobs depend. Those of the analysis follow from imports. Those of measurements are only what
can change a result, since an edit of the analysis must not cost hours of GPU time."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profile_grid.freshness.digests import FileDigests, digest_of_settings
from profile_grid.freshness.imports import UnreadableSource, digest_of_code, files_of_module, imported_files
from profile_grid.freshness.making import NoSuchSource, matching
from profile_grid.results.load_runs import stale_reason
from profile_grid.results.results import STOPPED_AT_S, BadResult, read_origin
from profile_grid.study.schema import unusable_sources
from profile_grid.study.stages import STAGES
from profile_grid.study.workloads import functions_named, program_of

JOB = "workflow/scripts/measure.py"


def question_files(root: Path, module: str, question: str = "*") -> list[str]:
    """The files with this module in the folders of questions, which the catalogue imports by name."""
    paths = sorted(root.glob(f"profile_grid/questions/{question}/{module}.py"))
    return [os.path.relpath(path, root) for path in paths if not path.name.startswith("test_")]


def measurement_sources(root: Path, config: Mapping) -> dict[str, str]:
    """By stage, a digest of the code whose change makes its results stale. Raises WorkflowError."""
    program = program_of(config)
    listed = _digest_of_listed(program["sources"])
    try:
        measured = {
            workload: digest_of_code(
                root, imported_files(root, *([workload.program] if workload.program else _programs(root, program)))
            )
            for workload in {stage.workload for stage in STAGES}
        }
        jobs = {
            stage: digest_of_code(root, matching(root, (stage.file("measure"), *stage.sources, JOB)))
            for stage in STAGES
        }
    except (UnreadableSource, NoSuchSource) as error:
        raise WorkflowError(f"{error}; nothing can be planned before that is corrected") from error
    return {stage.name: digest_of_settings([measured[stage.workload], jobs[stage], listed]) for stage in STAGES}


def _programs(root: Path, program: Mapping) -> list[str]:
    """The files of this project that change a measurement: the benchmark, and the functions named in config.yaml."""
    modules = (name.partition(":")[0] for name in functions_named(program))
    return ["cs336_model/program/benchmark.py", *(path for module in modules for path in files_of_module(root, module))]


def _digest_of_listed(paths: Sequence[str]) -> str:
    """A digest of the files of the working folder that config.yaml lists; empty without any."""
    for message in unusable_sources(Path.cwd(), paths):
        raise WorkflowError(f"config.yaml: {message}")
    return digest_of_code(Path.cwd(), paths) if paths else ""


def result_reason(
    outputs: Sequence[str],
    specification: str,
    sources: str,
    digest_of: FileDigests,
    time_limit_s: float = 0.0,
) -> Callable[[], str | None]:
    """A function that returns why a result (the first of `outputs`) and the files next to it are stale, given this
    specification, these sources and this time limit; None if they are not."""

    def reason() -> str | None:
        result, *files = map(Path, outputs)
        try:
            origin = read_origin(result)
        except BadResult as error:
            return f"a result cannot be used: {error.what}"
        for name in dict.fromkeys([*(path.name for path in files), *origin.files]):
            digest = digest_of(str(result.parent / name))
            if digest is None:
                return f"a file was deleted: {name}"
            if name not in origin.files or digest != origin.files[name].sha256:
                return f"a file is not the one that was measured: {name}"
        if (stopped_at_s := origin.facts.get(STOPPED_AT_S, time_limit_s)) < time_limit_s:
            return f"it was stopped at {stopped_at_s:g} s, and time_limit_s is {time_limit_s:g}"
        return stale_reason(origin, json.loads(specification), sources)

    return reason
