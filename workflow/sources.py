"""The source files on which jobs depend. Jobs of the analysis depend on all that they import, measurements only on what
can change a result, since an edit of the analysis must not cost hours of GPU time."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from snakemake.exceptions import WorkflowError

from profile_grid.freshness.digests import FileDigests, digest_of_settings
from profile_grid.freshness.imports import UnreadableSource, digest_of_code, files_of_module, imported_files
from profile_grid.freshness.jobs import NoSuchSource, matching_files
from profile_grid.results.load_runs import stale_reason
from profile_grid.results.results import STOPPED_AT_S, BadResult, read_origin
from profile_grid.study.schema import source_errors
from profile_grid.study.stages import STAGES
from profile_grid.study.workloads import functions_named, program_of

MEASURE_SCRIPT = "workflow/scripts/measure.py"


def question_files(root: Path, module: str, question: str = "*") -> list[str]:
    """The files MODULE.py of all questions, or of one. They are imported by the names of questions, so that no scan of
    imports finds them."""
    paths = sorted(root.glob(f"profile_grid/questions/{question}/{module}.py"))
    return [os.path.relpath(path, root) for path in paths if not path.name.startswith("test_")]


def measurement_digests(root: Path, config: Mapping) -> dict[str, str]:
    """By stage, a digest of the code whose change makes its results stale: that of the measured program, that of the
    stage, and the user's files. Raises WorkflowError."""
    program = program_of(config)
    users_digest = _digest_of_users_files(program["sources"])
    program_digests, stage_digests = {}, {}
    try:
        for workload in dict.fromkeys(stage.workload for stage in STAGES):
            files = [workload.program_file] if workload.program_file else _program_files(root, program)
            program_digests[workload] = digest_of_code(root, imported_files(root, *files))
        for stage in STAGES:
            files = matching_files(root, (stage.module_path("measure"), *stage.sources, MEASURE_SCRIPT))
            stage_digests[stage.name] = digest_of_code(root, files)
    except (UnreadableSource, NoSuchSource) as error:
        raise WorkflowError(f"{error}; nothing can be planned before that is corrected") from error
    return {
        stage.name: digest_of_settings([program_digests[stage.workload], stage_digests[stage.name], users_digest])
        for stage in STAGES
    }


def _program_files(root: Path, program: Mapping) -> list[str]:
    """The files of this project that run in a measured program: the benchmark, and the modules of the functions that
    config.yaml names."""
    modules = (name.partition(":")[0] for name in functions_named(program))
    return ["cs336_model/program/benchmark.py", *(path for module in modules for path in files_of_module(root, module))]


def _digest_of_users_files(paths: Sequence[str]) -> str:
    """A digest of the files of the working folder that config.yaml lists as `sources`; empty if it lists none."""
    for message in source_errors(Path.cwd(), paths):
        raise WorkflowError(f"config.yaml: {message}")
    return digest_of_code(Path.cwd(), paths) if paths else ""


def stale_result_reason(
    outputs: Sequence[str],
    specification_text: str,
    sources_digest: str,
    digest_of: FileDigests,
    time_limit_s: float = 0.0,
) -> str | None:
    """Why a measurement's outputs are stale, given the present specification (as JSON), digest of sources and time
    limit; None if they are not. The first output is the result, the others are files next to it."""
    result_path, *other_paths = map(Path, outputs)
    try:
        origin = read_origin(result_path)
    except BadResult as error:
        return f"a result cannot be used: {error.problem}"
    # the files that the stage declares, then others that the result lists
    for name in dict.fromkeys([*(path.name for path in other_paths), *origin.files]):
        digest = digest_of(str(result_path.parent / name))
        if digest is None:
            return f"a file was deleted: {name}"
        if name not in origin.files or digest != origin.files[name].sha256:
            return f"a file is not the one that was measured: {name}"
    stopped_at_s = origin.facts.get(STOPPED_AT_S, time_limit_s)  # most results were not stopped
    if stopped_at_s < time_limit_s:
        return f"it was stopped at {stopped_at_s:g} s, and time_limit_s is {time_limit_s:g}"
    return stale_reason(origin, json.loads(specification_text), sources_digest)
