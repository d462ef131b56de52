"""Writes the examples below docs/ from their merged tables: `python -m docs.examples`.

The first example is a complete study. Each other one has the merged tables, and the tables, document and figures of its
questions. Figures are SVG; pages are committed only as digests (docs/pages.py). A table without rows has no file.
"""

import argparse
import json
import shutil
from collections import ChainMap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from profile_grid.comparing import outputs, results
from profile_grid.documents.dictionary import dictionary
from profile_grid.documents.documents import ALL_ANSWERS, document_names, documents, section
from profile_grid.documents.summaries import Summaries
from profile_grid.figures import panels, paper, run_selection
from profile_grid.files import replacing, write_text
from profile_grid.study import dimensions, stages, workloads
from profile_grid.study.catalogue import (
    MERGED_NAMES,
    QUESTIONS,
    merged_names,
    questions_asked,
    summary_names,
    workloads_of,
)
from profile_grid.tables.measured import by_machine
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables
from profile_grid.tables.wording import Claim, listed, of_all


class CommittedTables(TablesOnDisk):
    """The tables in a folder, by name. A table that is declared, but has no file, is empty."""

    def __getitem__(self, name: str) -> pd.DataFrame:
        if name not in self._read and name in declared_tables() and not (self.folder / f"{name}.parquet").exists():
            self._read[name] = with_declared_columns(name, None)
        return super().__getitem__(name)


def write_committed(path: Path, table: pd.DataFrame) -> None:
    """Writes a table in few bytes, or removes its file if it has no rows."""
    if table.empty:
        path.unlink(missing_ok=True)
        return
    arrow_table = pa.Table.from_pandas(table, preserve_index=False)
    encodings = {field.name: encoding for field in arrow_table.schema if (encoding := _encoding(field.type))}
    with replacing(path) as partial:
        pq.write_table(
            arrow_table, partial, compression="zstd", compression_level=19, column_encoding=encodings,
            use_dictionary=[name for name in arrow_table.column_names if name not in encodings],
            write_statistics=False, store_schema=False,  # these need more bytes than the values of a small table
        )  # fmt: skip


def _encoding(kind: pa.DataType) -> str | None:
    """The encoding of Parquet with the fewest bytes for a column of this type; None for its default, a dictionary."""
    if pa.types.is_integer(kind):
        return "DELTA_BINARY_PACKED"
    return "BYTE_STREAM_SPLIT" if pa.types.is_floating(kind) else None


def with_declared_columns(name: str, table: pd.DataFrame | None) -> pd.DataFrame:
    """The merged table with the declared columns; without rows if `table` is None. Absent dimensions get their default,
    absent statuses "not requested", absent columns of the table `cost` 0; all others are empty."""
    names = declared_tables()[name].all_names
    table = pd.DataFrame(columns=names) if table is None else table
    absent = {column: _value_if_absent(name, column) for column in names if column not in table}
    return table.assign(**absent)[names]


def _value_if_absent(table: str, column: str) -> object:
    if column in dimensions.BY_KEY:
        return dimensions.BY_KEY[column].default
    if column.endswith("_status"):
        return stages.NOT_ASKED
    return 0.0 if table == "cost" else None


COMPARISONS = Path(__file__).parent / "example-h200" / "comparison"
SIDES = ("before", "after")  # folders of a comparison
COMMITTED_SUFFIXES = (".md", ".svg")  # of files of a comparison, in addition to tables with rows


def comparisons() -> list[Path]:
    """The folders of the committed comparisons."""
    return sorted(path.parent for path in COMPARISONS.glob(f"*/{SIDES[0]}"))


def make_comparison(committed: Path, folder: Path) -> dict[str, pd.DataFrame]:
    """Writes all files of a committed comparison into another folder; returns its tables by name."""
    return outputs.write_comparison(*(_side(committed / side) for side in SIDES), folder)


def remake_comparison(committed: Path) -> None:
    """Writes the committed files of a comparison."""
    with TemporaryDirectory() as scratch:
        for name, table in make_comparison(committed, Path(scratch)).items():
            write_committed(committed / f"{name}.parquet", table)
        for path in Path(scratch).iterdir():
            if path.suffix in COMMITTED_SUFFIXES:
                shutil.copyfile(path, committed / path.name)


def _side(folder: Path) -> results.Results:
    provenance = json.loads((folder / "tables" / "provenance.json").read_text())
    return results.Results(folder, CommittedTables(folder / "tables"), provenance)


DOCS = Path(__file__).parent
MODEL_SIZES = ["d_model", "d_ff", "num_layers", "num_heads", "vocab_size"]
# Runs with equal values of these columns compute the same; a model with two names counts as one.
WORK_COLUMNS = [*MODEL_SIZES, *(key for key in dimensions.KEYS if key != dimensions.MODEL.key)]


@dataclass(frozen=True, eq=False)
class Example:
    """Results of a grid below docs/."""

    folder: Path
    questions: tuple[str, ...] = ()  # that it is about; empty: about all
    document: str = ALL_ANSWERS  # the document to link to: the one with all answers, or that of one of its questions
    see_also: Mapping[str, str] = field(default_factory=dict)  # by question, another study that also answers it

    @property
    def summaries(self) -> tuple[str, ...]:
        """The committed tables of answers."""
        tables = [name for question in QUESTIONS if question.name in self.questions for name in question.tables]
        return tuple(dict.fromkeys(tables)) if self.questions else summary_names({workloads.MODEL_STEPS})

    @property
    def merged_names(self) -> tuple[str, ...]:
        """The committed merged tables."""
        return merged_names(workloads_of(self.merged()["runs"].to_dict("records")))

    def merged(self) -> CommittedTables:
        return CommittedTables(self.folder / "tables", declared=declared_tables())

    @cache  # noqa: B019 the examples are constants
    def tables(self) -> Mapping[str, pd.DataFrame]:
        """All tables: merged tables, and tables of answers, computed when they are first read."""
        merged = self.merged()
        return ChainMap(Summaries(merged), merged)

    def provenance(self) -> dict:
        return json.loads((self.folder / "tables" / "provenance.json").read_text())

    def answered_questions(self, runs: pd.DataFrame) -> list[str]:
        """The questions that the committed documents answer."""
        return [*self.questions] if self.document != ALL_ANSWERS else document_names(runs)

    def links(self, up: str = "../") -> dict[str, Claim]:
        """By question, a sentence with a link to the study that also answers it, or if these runs have no answer, the
        answer of that study. `up` is the path to this example's folder from the file with the links."""
        return {question: _link(self, question, _study(name), up=up) for question, name in self.see_also.items()}

    def committed_documents(self, runs: pd.DataFrame) -> list[str]:
        """The names of the committed documents."""
        if not self.questions:
            return [*document_names(runs), ALL_ANSWERS]
        return [ALL_ANSWERS] if self.document == ALL_ANSWERS else [*self.questions]

    def document_of(self, question: str) -> str:
        """The committed document with this question."""
        return ALL_ANSWERS if self.document == ALL_ANSWERS else question

    def figure_names(self, runs: pd.DataFrame) -> list[str]:
        """The figures of its questions, also those that show nothing, which are not committed."""
        questions = questions_asked(runs.to_dict("records"))
        questions = [question for question in questions if not self.questions or question.name in self.questions]
        return [name for question in questions for name in question.figures]


H200 = DOCS / "example-h200"
MAIN_STUDY = Example(H200, see_also={"time_lost": "diagnosis"})
QUESTIONS_OF_2026 = (
    "a_forward_time", "b_top_kernels", "c_other_kernels", "d_training_vs_inference", "e_attention", "f_precision",
    "i_memory",
)  # fmt: skip
STUDIES = (
    Example(H200 / "precision", ("f_precision",), see_also={"f_precision": "energy"}),
    Example(H200 / "compile", ("g_compile",)),
    Example(H200 / "attention", ("h_attention",)),
    Example(H200 / "memory", ("i_memory", "memory_predicted"), see_also={"i_memory": "block"}),
    Example(H200 / "block", ("i_memory",), "i_memory", see_also={"i_memory": "memory"}),
    Example(H200 / "checkpoint", ("j_checkpoint",), "j_checkpoint", see_also={"j_checkpoint": "checkpoint-bf16"}),
    Example(H200 / "checkpoint-bf16", ("j_checkpoint",), "j_checkpoint", see_also={"j_checkpoint": "checkpoint"}),
    Example(H200 / "first-step", ("k_warmup",)),
    Example(H200 / "counters", ("l_counters",)),
    Example(H200 / "energy", ("m_energy",), see_also={"f_precision": "precision"}),
    Example(H200 / "parallel", ("n_communication", "communication_limits"), "n_communication"),
    Example(H200 / "parallel-2026", ("n_communication", "communication_limits"), "n_communication"),
    Example(H200 / "diagnosis", ("time_lost",), "time_lost"),
    Example(H200 / "host", ("time_lost",), "time_lost"),
    Example(H200 / "cs336-2026", QUESTIONS_OF_2026, see_also={"i_memory": "memory", "f_precision": "precision"}),
    Example(H200 / "attention-sweep", ("attention_sweep",), "attention_sweep"),
)
EXAMPLES = (MAIN_STUDY, *STUDIES)


def _link(example: Example, question: str, study: Example, *, up: str) -> Claim:
    """The sentence of `Example.links` on one question, which links to `study`."""
    name = study.folder.name
    path_to_studies = up if example is MAIN_STUDY else f"{up}../"  # the main study's folder holds the other studies
    link = f"[study {name}]({path_to_studies}{name}/answers/{study.document}.md)"
    models_here, models_there = (_model_by_work(side.merged()["runs"]) for side in (example, study))
    shared = models_here.keys() & models_there.keys()
    if answer_of(example, question).rule == "missing":
        runs = "" if len(shared) == len(models_there) else f", {len(shared)} of these runs"
        answer = answer_of(study, question)
        return Claim("{answer} ({link}{runs}).", answer.rule, answer=answer.removesuffix("."), link=link, runs=runs)
    pairs = {(models_here[work], models_there[work]) for work in shared}  # names of one model
    names = sorted(f"{here} here is {there} there" for here, there in pairs if here != there)
    return Claim(
        "See also the {link}: {same}.", "counted", link=link,
        same=_same_runs(len(shared), len(models_there)) + (f" ({listed(names)})" if names else ""),
    )  # fmt: skip


def _same_runs(shared: int, run_count: int) -> str:
    """In words: how many of the `run_count` runs of another study have the settings of a run here."""
    if not shared:
        return "the same question in other settings"
    return f"{of_all(shared, run_count, 'run')} there {'has' if run_count == 1 else 'have'} the same settings as here"


def _model_by_work(runs: pd.DataFrame) -> dict[tuple, str]:
    """The name of the model of each run, by the values of WORK_COLUMNS."""
    return dict(zip(runs[WORK_COLUMNS].itertuples(index=False, name=None), runs[dimensions.MODEL.key], strict=True))


@cache
def answer_of(example: Example, question: str) -> Claim:
    """The first sentence of an example on a question, for its first machine."""
    tables = example.tables()
    machine = by_machine(tables["runs"])[0]
    return section(*machine, tables["runs"], tables, [question]).sentences[question][0]


def _study(name: str) -> Example:
    return next(study for study in STUDIES if study.folder.name == name)


def main() -> None:
    from docs import overview  # which imports this module
    from docs.pages import write_digests

    for example in EXAMPLES:
        add_absent_columns(example.folder / "tables")
    for example in EXAMPLES:
        remake(example)
    for comparison in comparisons():
        remake_comparison(comparison)
    write_text(H200 / "tables" / "README.md", dictionary())
    write_text(overview.AGREEMENT, overview.agreement().to_csv(index=False))
    write_text(overview.README, overview.overview())
    write_text(overview.SENTENCES, overview.sentences())
    write_digests()


def add_absent_columns(folder: Path) -> None:
    """Gives the merged tables in a folder the declared columns: adds those that are absent, and removes all others."""
    on_disk = CommittedTables(folder)  # without `declared`, so that columns are not checked
    for name in MERGED_NAMES:
        table = with_declared_columns(name, on_disk[name])
        if list(table.columns) != list(on_disk[name].columns):
            write_committed(folder / f"{name}.parquet", table)


def remake(example: Example) -> None:
    """Writes all committed files of an example, from its merged tables."""
    folder, tables = example.folder, example.tables()
    runs = tables["runs"]
    for name in example.summaries:
        write_committed(folder / "tables" / f"{name}.parquet", tables[name])
    for name, text in documents(
        tables, runs, example.provenance(), example.committed_documents(runs), example.links()
    ).items():
        write_text(folder / "answers" / f"{name}.md", text)
    for name, svg in figure_images(example):
        write_text(folder / "figures" / f"{name}.svg", svg.decode())


def figure_images(example: Example) -> Iterator[tuple[str, bytes]]:
    """(name, SVG) of each committed figure: those that have a chart, instead of the reason why they are empty."""
    tables = example.tables()
    for figure in map(panels.all_figures().get, example.figure_names(tables["runs"])):
        if svg := _figure_image(figure, tables):
            yield figure.name, svg


def _figure_image(figure: panels.Figure, tables: Mapping[str, pd.DataFrame]) -> bytes | None:
    """The SVG of a figure; None if it has no chart."""
    machine_tables, *_ = run_selection.of_one_machine({name: tables[name] for name in figure.tables})
    drawing = figure.draw(machine_tables)
    if drawing.chart is None:
        return None
    drawn_once = replace(figure, draw=lambda _: drawing)  # on_paper would draw it again
    return paper.drawn(paper.on_paper(drawn_once, tables), ".svg")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
