"""The examples below docs/, made anew from their merged tables by `python -m docs.examples`, after a change of them.

The first is a whole study. The others are studies beside it, of which only what they are about is kept: the merged
tables as Parquet, the tables of their question as CSV, the answers in one document, and the figures of the question. Of
the attention sweep all that it gives is kept.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from docs.comparisons import comparisons, remake_comparison
from kernel_tables.report.report import report
from kernel_tables.trace import Trace
from profile_grid.documents.dictionary import dictionary
from profile_grid.documents.documents import ALL, asked_of, documents
from profile_grid.documents.summaries import Summaries, summary_tables
from profile_grid.figures.paper import SUFFIXES, drawn, on_paper, write_figure
from profile_grid.figures.registry import all_figures
from profile_grid.files import write_table, write_text
from profile_grid.merging.timeline import empty_timeline
from profile_grid.page import needed_tables, page
from profile_grid.study.catalogue import MERGED, QUESTIONS, SUMMARIES, questions_asked
from profile_grid.study.dimensions import BY_KEY
from profile_grid.study.stages import NOT_ASKED
from profile_grid.study.sweep_dimensions import ATTENTION_SWEEP, SWEEP_ROWS
from profile_grid.sweep.document import document as document_of_sweep
from profile_grid.sweep.figure import SWEEP
from profile_grid.tables.declared import declared_tables
from profile_grid.tables.on_disk import TablesOnDisk

DOCS = Path(__file__).parent


@dataclass(frozen=True)
class Example:
    """Results of a grid that lie below docs/; `questions` are those that a study beside the first is about, `document`
    what is kept of its answers."""

    folder: Path
    questions: tuple[str, ...] = ()
    document: str = ALL

    @property
    def summaries(self) -> tuple[str, ...]:
        """The tables of answers that are kept."""
        own = [name for one in QUESTIONS if one.name in self.questions for name in one.tables]
        return tuple(dict.fromkeys(own)) if self.questions else SUMMARIES

    def merged(self) -> TablesOnDisk:
        """The merged tables."""
        return TablesOnDisk(self.folder / "tables", declared=declared_tables())

    def tables(self) -> Mapping[str, pd.DataFrame]:
        """All tables: those of answers are kept of the first study alone, and made now of others."""
        merged = self.merged()
        return ChainMap(Summaries(merged), merged) if self.questions else merged

    def provenance(self) -> dict:
        """Where its figures come from."""
        return json.loads((self.folder / "tables" / "provenance.json").read_text())

    def documents(self, runs: pd.DataFrame) -> list[str]:
        """The documents that are kept."""
        return [self.document] if self.questions else [*asked_of(runs), ALL]

    def figures(self, runs: pd.DataFrame) -> list[str]:
        """The figures that are kept."""
        asked = questions_asked(runs.to_dict("records"))
        return [name for one in asked for name in one.figures if not self.questions or one.name in self.questions]


H200 = DOCS / "example-h200"
WHOLE = Example(H200)
OF_2026 = (
    "a_forward_time",
    "b_top_kernels",
    "c_other_kernels",
    "d_training_vs_inference",
    "e_attention",
    "f_precision",
)
STUDIES = (
    Example(H200 / "precision", ("f_precision",)),
    Example(H200 / "compile", ("g_compile",)),
    Example(H200 / "attention", ("h_attention",)),
    Example(H200 / "memory", ("i_memory",)),
    Example(H200 / "checkpoint", ("j_checkpoint",)),
    Example(H200 / "first-step", ("k_warmup",)),
    Example(H200 / "counters", ("l_counters",)),
    Example(H200 / "energy", ("m_energy",)),
    Example(H200 / "parallel", ("n_communication",), "n_communication"),
    Example(H200 / "diagnosis", ("time_lost",), "time_lost"),
    Example(H200 / "host", ("time_lost",), "time_lost"),
    Example(H200 / "cs336-2026", (*OF_2026, "i_memory")),
)
SWEEP_EXAMPLE = H200 / "attention-sweep"


PAGE = H200 / "report.html"
RECORDING = H200 / "recording" / "gpt.sqlite.gz"  # what kernel-tables record kept of benchmarks/programs/gpt.py large
RECORDING_PAGE = RECORDING.with_name("report.html")


def main() -> None:
    for example in (WHOLE, *STUDIES):
        remake(example)
    write_text(PAGE, page_of(WHOLE))
    write_text(RECORDING_PAGE, page_of_recording())
    for path, content in made_of_sweep(SWEEP_EXAMPLE).items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    for kept in comparisons():
        remake_comparison(kept, kept)
    write_text(H200 / "tables" / "README.md", dictionary())


def remake(example: Example) -> None:
    """Writes all that is kept of an example, from its merged tables, to which columns are added that they lack."""
    folder, on_disk = example.folder, example.merged()
    tables = {name: as_declared(name, on_disk.get(name)) for name in MERGED}
    for name, table in tables.items():
        if on_disk.get(name) is None or list(table.columns) != list(on_disk[name].columns):
            _write(folder / "tables" / f"{name}.parquet", table, not example.questions and name != "kernels")
    on_disk = example.merged()
    summaries = summary_tables(on_disk)
    for name in example.summaries:
        write_table(folder / "tables" / f"{name}.csv", summaries[name])
        if example.questions:
            (folder / "tables" / f"{name}.parquet").unlink()  # write_table writes both
    made = documents(summaries, on_disk["runs"], example.provenance(), example.documents(on_disk["runs"]))
    for name, text in made.items():
        write_text(folder / "answers" / f"{name}.md", text)
    for name in example.figures(on_disk["runs"]):
        write_figure(all_figures()[name], ChainMap(summaries, on_disk), folder / "figures")


def made_of_sweep(folder: Path) -> dict[Path, bytes]:
    """What each file of a sweep holds that is made from its two tables, by the file's path."""
    on_disk = TablesOnDisk(folder / "tables")
    table, rows = on_disk[ATTENTION_SWEEP], on_disk[SWEEP_ROWS]
    provenance = json.loads((folder / "tables" / "provenance.json").read_text())
    figure = on_paper(SWEEP, {"runs": rows, ATTENTION_SWEEP: table})
    made = {folder / "answers" / f"{ATTENTION_SWEEP}.md": document_of_sweep(table, rows, provenance).encode()}
    with TemporaryDirectory() as scratch:
        write_table(Path(scratch, ATTENTION_SWEEP), table)
        made[folder / "tables" / f"{ATTENTION_SWEEP}.csv"] = Path(scratch, f"{ATTENTION_SWEEP}.csv").read_bytes()
    figures = {folder / "figures" / f"{SWEEP.name}{suffix}": drawn(figure, suffix) for suffix in SUFFIXES}
    return made | figures


def page_of(example: Example) -> str:
    """The page of a study, as its grid would have made it from what is kept of it: no capture is, and the timeline of
    one step of the first study alone."""
    tables = example.tables()
    needed = {name: tables[name] for name in needed_tables()}
    asked = questions_asked(tables["runs"].to_dict("records"))
    images = {name: _image(name, example.folder / "figures", tables) for one in asked for name in one.figures}
    if example.questions:
        return page(needed, example.provenance(), empty_timeline(), images)
    timeline = pd.read_parquet(example.folder / "page" / "timeline.parquet")
    return page(needed, example.provenance(), timeline, images, "page/trace.json.gz")


def _image(name: str, kept: Path, tables: Mapping[str, pd.DataFrame]) -> bytes:
    """The PNG file of a figure that is kept; else drawn now, and not kept."""
    path = kept / f"{name}.png"
    return path.read_bytes() if path.exists() else drawn(on_paper(all_figures()[name], tables), ".png")


def page_of_recording() -> str:
    """The page of one capture, as `kernel-tables report` makes it."""
    with Trace(RECORDING) as trace:
        return report(trace)


def as_declared(name: str, table: pd.DataFrame | None) -> pd.DataFrame:
    """The merged table of this name with the columns declared today. A dimension that it lacks has its default,
    a stage was not asked for and took no time, other columns are empty. Without rows where there was no table."""
    names = declared_tables()[name].all_names
    table = pd.DataFrame(columns=names) if table is None else table
    lacking = {column: _unmeasured(name, column) for column in names if column not in table}
    return table.assign(**lacking)[names]


def _unmeasured(table: str, column: str) -> object:
    if column in BY_KEY:
        return BY_KEY[column].default
    if column.endswith("_status"):
        return NOT_ASKED
    return 0.0 if table == "cost" else None


def _write(path: Path, table: pd.DataFrame, also_as_csv: bool) -> None:
    write_table(path, table)
    if not also_as_csv:
        path.with_suffix(".csv").unlink()


if __name__ == "__main__":
    main()
