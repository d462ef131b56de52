"""The HTML pages of the examples, which `python -m docs.make` builds. They have up to 5 MB, so only their digests are
committed, which show that a page has changed; `python -m docs.pages` writes the digests."""

import argparse
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from docs.examples import H200, MAIN_STUDY, STUDIES, Example, comparisons, make_comparison
from kernel_tables.report.report import report
from kernel_tables.trace import Trace
from profile_grid.figures.panels import all_figures
from profile_grid.figures.paper import drawn, on_paper
from profile_grid.files import write_json
from profile_grid.page import needed_tables, page
from profile_grid.stages.capture.timeline import empty_timeline
from profile_grid.study.catalogue import questions_asked

RECORDING = H200 / "recording" / "gpt.sqlite.gz"  # of tests/kernel_recorder/programs/gpt.py large
DIGESTS = H200 / "pages.json"
EMBEDDED = re.compile(r"base64,[A-Za-z0-9+/=]+|[A-Za-z0-9+/]{200,}=*")  # images and libraries, in base64


def pages() -> dict[Path, Callable[[], str]]:
    """Functions that return the pages of the main study, of a recording and of comparisons, by path."""
    by_path = {
        H200 / "report.html": partial(page_of, MAIN_STUDY),
        RECORDING.with_name("report.html"): page_of_recording,
    }
    return by_path | {path / "comparison.html": partial(page_of_comparison, path) for path in comparisons()}


def pages_of_studies() -> dict[Path, Callable[[], str]]:
    """Functions that return the pages of the other studies, by path."""
    return {example.folder / "report.html": partial(page_of, example) for example in STUDIES}


def write_digests() -> None:
    write_json(DIGESTS, {str(path.relative_to(H200)): digest(make()) for path, make in pages().items()})


def digest(text: str) -> str:
    """The SHA-256 of a page without its images and libraries, which are tested elsewhere."""
    return hashlib.sha256(EMBEDDED.sub("", text).encode()).hexdigest()


def page_of(example: Example) -> str:
    """The page of a study, from its committed tables. Only the main study has a timeline; no study has captures."""
    tables = example.tables()
    needed = {name: tables[name] for name in needed_tables(tables["runs"])}
    table_files = {path.stem: f"tables/{path.name}" for path in (example.folder / "tables").glob("*.parquet")}
    options = {"images": _images(needed), "table_files": table_files, "links": example.links("")}
    make_page = partial(page, needed, example.provenance(), **options)
    if example is not MAIN_STUDY:
        return make_page(timeline=empty_timeline())
    timeline = pd.read_parquet(example.folder / "page" / "timeline.parquet")
    return make_page(timeline=timeline, trace_file="page/trace.json.gz")


def _images(tables: Mapping[str, pd.DataFrame]) -> dict[str, bytes]:
    """The figures of the questions that these runs answer, as PNG, by name."""
    questions = questions_asked(tables["runs"].to_dict("records"))
    names = [name for question in questions for name in question.figures]
    return {name: drawn(on_paper(all_figures()[name], tables), ".png") for name in names}


def page_of_comparison(committed: Path) -> str:
    """The page of a comparison, from its committed sides."""
    with TemporaryDirectory() as folder:
        make_comparison(committed, Path(folder))
        return Path(folder, "comparison.html").read_text(encoding="utf-8")


def page_of_recording() -> str:
    """The page of one capture, as `kernel-tables report` makes it."""
    with Trace(RECORDING) as trace:
        return report(trace)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    write_digests()
