"""The names of the files of results that are packed and unpacked; all others are refused."""

import re
from functools import cache
from pathlib import Path

from profile_grid.study.catalogue import DOCUMENTS, FIGURES, MERGED, TABLES
from profile_grid.study.stages import STAGES, TIMING

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"  # of a run, or of a table for a write-up
_STATUS_FILES = [stage.tables_of_a_run.status_file for stage in STAGES if stage.tables_of_a_run]


def packed_files(results: Path, *, captures: bool) -> list[str]:
    """The files below `results` to pack, relative and sorted, without symbolic links; captures only if requested."""
    paths = (path for path in results.rglob("*") if path.is_file() and not path.is_symlink())
    names = (path.relative_to(results).as_posix() for path in paths)
    return sorted(name for name in names if is_content(name) and (captures or not is_capture(name)))


def is_content(name: str) -> bool:
    """Whether an archive may hold a file of this name."""
    return is_source(name) or is_capture(name) or bool(_derived().fullmatch(name))


def is_source(name: str) -> bool:
    """Whether the file is a result of a run, or a table or plan from which other files are made."""
    return bool(_sources().fullmatch(name))


def is_capture(name: str) -> bool:
    """Whether the file is a capture, such as capture.sqlite or, of the second rank, capture_rank1.sqlite. A .nsys-rep
    is never packed: it may hold more about its host than is meant for others."""
    return bool(_captures().fullmatch(name))


@cache
def _sources() -> re.Pattern:
    of_run = _any([stage.result for stage in STAGES], _STATUS_FILES)
    return re.compile(
        rf"grid\.json|tables/({_any(MERGED)})\.(csv|parquet)|tables/provenance\.json"
        r"|page/timeline\.(csv|parquet)"
        rf"|page/trace\.json\.gz|runs/{NAME}/({of_run})"
        rf"|processes/steps\.(csv|parquet)|processes/[0-9]+/{NAME}/{re.escape(TIMING.result)}"
    )


@cache
def _captures() -> re.Pattern:
    names = (Path(name) for stage in STAGES for name in stage.files)
    of_ranks = "|".join(rf"{re.escape(name.stem)}(_rank[0-9]+)?{re.escape(name.suffix)}" for name in names)
    return re.compile(rf"runs/{NAME}/({of_ranks})")


@cache
def _derived() -> re.Pattern:
    return re.compile(
        rf"tables/({_any(TABLES)})\.(csv|parquet)|tables/README\.md|tables/(markdown|latex|typst)/({NAME}/)?(?!made\.json){NAME}"
        rf"|report\.html|answers/({_any(['answers'], DOCUMENTS)})\.(md|tex|typ)"
        rf"|figures/({_any(FIGURES)})\.(svg|png)"
    )


def _any(*lists) -> str:
    return "|".join(re.escape(name) for names in lists for name in names)
