"""The documents that answer the questions, in Markdown, made from the summary tables with Jinja.

A template arranges a document; its sentences, tables and definitions come from the folder of the question. Machines are
never mixed: each has its own section in every document. Every document also says what was not measured, and why.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path
from types import ModuleType

import jinja2
import pandas as pd

from kernel_tables.markdown import code, escaped, pipe_table
from profile_grid.documents import run_remarks
from profile_grid.documents.definitions import needed_for
from profile_grid.quantities import known, percent
from profile_grid.results.results import COMPLETE
from profile_grid.study import catalogue
from profile_grid.study.catalogue import Question
from profile_grid.study.dimensions import MODEL
from profile_grid.study.stages import NOT_ASKED, STAGES, TIMING
from profile_grid.tables import cells, evidence
from profile_grid.tables.evidence import LAUNCH_BOUND_SHARE
from profile_grid.tables.measured import Machine, Measured, by_machine, command_to_measure_again, measured_on
from profile_grid.tables.wording import MAX_BULLETS, VERDICTS, Claim, listed

TEMPLATES = Path(__file__).with_name("templates")
QUESTION_FOLDERS = Path(__file__).parents[1] / "questions"
ALL_ANSWERS = "answers"
TITLE = "Where the time of a Transformer goes"  # of the document with all answers


@dataclass(frozen=True)
class Section:
    """What the templates show of one machine."""

    machine: Machine
    measured: Measured
    sentences: dict[str, list[Claim]]  # by name of the question: the answer, then the bullets
    command_to_measure_again: str

    @property
    def models(self) -> str:
        """The models with known sizes, in words: "small (12 layers, d_model 768, d_ff 3072, 12 heads)"."""
        rows = self.measured.runs.drop_duplicates(MODEL.key).to_dict("records")
        sizes = {escaped(row[MODEL.key]): _sizes_in_words(row) for row in rows}
        return "; ".join(f"{model} ({words})" for model, words in sizes.items() if words)

    def not_measured(self, question: Question | None = None) -> list[str]:
        """Why runs have no results: all runs and stages, or only those that the question's document shows."""
        return run_remarks.not_measured(self._runs_of(question), STAGES if question is None else question.stages)

    def notes(self, question: Question | None = None) -> list[str]:
        """The notes on all runs, or only on those that the question's document shows."""
        return run_remarks.run_notes(self._runs_of(question))

    def first_verdict(self, questions: Iterable[Question]) -> str | None:
        """The name of the first question with a sentence that rests on differences between processes, or None."""
        answers = ((question.name, self.sentences[question.name]) for question in questions)
        return next((name for name, claims in answers if any(claim.rule in VERDICTS for claim in claims)), None)

    @property
    def processes(self) -> tuple[int, int]:
        """The fewest and the most processes that timed a run; (1, 1) if none was timed."""
        runs = self.measured.runs
        timed = runs.loc[runs[TIMING.status_column] == COMPLETE, "processes_timed"].fillna(1)
        return (int(timed.min()), int(timed.max())) if len(timed) else (1, 1)

    def _runs_of(self, question: Question | None) -> pd.DataFrame:
        runs = self.measured.runs
        return runs if question is None else runs[[question.shows(run) for run in runs.to_dict("records")]]

    def legend(self, markdown: str) -> list[tuple[str, str]]:
        """(label, full name) of every kernel that this Markdown mentions by a short name, the longest time first."""
        labels = [(self.measured.label(name), name) for name in self.measured.short_names]
        return [(label, name) for label, name in labels if label in markdown and label.startswith("**")]  # short: bold


def _sizes_in_words(row: dict) -> str:
    """The sizes of a run's model in words; empty if the model has sizes with other names."""
    if not all(known(row.get(name)) for name in ("num_layers", "d_model", "d_ff", "num_heads")):
        return ""
    return (
        f"{row['num_layers']:.0f} layers, d_model {row['d_model']:.0f}, d_ff {row['d_ff']:.0f},"
        f" {row['num_heads']:.0f} heads"
    )


def documents(
    summaries: Mapping[str, pd.DataFrame],
    runs: pd.DataFrame,
    provenance: dict,
    names: Iterable[str] | None = None,
) -> dict[str, str]:
    """The documents with these names (without suffix), by default one per question that the runs can answer, and
    ALL_ANSWERS."""
    answerable = document_names(runs)
    names = [*answerable, ALL_ANSWERS] if names is None else list(names)
    questions_of = {name: answerable if name == ALL_ANSWERS else [name] for name in names}  # by document, their names
    every_question = list(dict.fromkeys(chain.from_iterable(questions_of.values())))
    context = {
        "sections": [
            section(machine, run_names, runs, summaries, every_question) for machine, run_names in by_machine(runs)
        ],
        "provenance": provenance,
        "modules": {name: _document_module(name) for name in every_question},
    }
    template = template_environment().get_template("document.md.j2")
    question_by_name = {question.name: question for question in catalogue.QUESTIONS}
    rendered = {}
    for name, question_names in questions_of.items():
        questions = [question_by_name[question_name] for question_name in question_names]
        text = template.render(**context, title=TITLE if name == ALL_ANSWERS else "", questions=questions)
        rendered[name] = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    return rendered


def document_names(runs: pd.DataFrame) -> list[str]:
    """The names of the questions with a document that these runs can answer."""
    return [question.name for question in catalogue.questions_asked(runs.to_dict("records")) if question.has_document]


def section(
    machine: Machine,
    run_names: list[str],
    runs: pd.DataFrame,
    summaries: Mapping[str, pd.DataFrame],
    question_names: Iterable[str] | None = None,
) -> Section:
    """What one machine contributes to the documents of these questions, by default of all that the runs can answer."""
    names = document_names(runs) if question_names is None else question_names
    measured = measured_on(machine, run_names, runs, summaries)
    sentences = {name: _document_module(name).sentences(measured)[: 1 + MAX_BULLETS] for name in names}
    return Section(machine, measured, sentences, command_to_measure_again(measured.runs))


def template_environment() -> jinja2.Environment:
    """The Jinja environment of the templates in Markdown: an unknown name in a template is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, QUESTION_FOLDERS]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # it is for HTML; names go through `escaped` or `code`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"escaped": escaped, "code": code, "in_markdown": in_markdown, "percent": percent}
    environment.filters |= {"as_text": as_text, "outcomes": outcomes, "needed_for": needed_for}
    environment.globals |= {"evidence": evidence, "LAUNCH_BOUND_SHARE": LAUNCH_BOUND_SHARE}
    return environment


def _document_module(question: str) -> ModuleType:
    return import_module(f"profile_grid.questions.{question}.document")


def in_markdown(parts: Iterable[cells.Part]) -> str:
    """The parts of a document: paragraphs, and tables below their introductions; without tables that are None or have
    no rows."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        introduction, table = part
        if table and table.rows:
            texts.append(f"{introduction}:\n\n{pipe_table(table)}")
    return "\n\n".join(texts)


def outcomes(counts: dict[str, int], stages: str) -> str:
    """How the stages of the runs ended, in words: "timing and capture: 60 complete, 1 out of memory; memory: ...".
    `stages` are the names of the stages, joined by " / ". `counts` are numbers of runs by the statuses of these stages,
    joined likewise."""
    names_by_outcome: dict[str, list[str]] = {}
    for index, stage in enumerate(stages.split(" / ")):
        totals: Counter[str] = Counter()
        for statuses, number in counts.items():
            status = statuses.split(" / ")[index]
            totals["not requested" if status == NOT_ASKED else status.replace("_", " ")] += number
        outcome = ", ".join(f"{number} {escaped(words)}" for words, number in totals.items())
        names_by_outcome.setdefault(outcome, []).append(escaped(stage.replace("_", " ")))
    return "; ".join(f"{listed(names)}: {outcome}" for outcome, names in names_by_outcome.items())


def as_text(value: object) -> str:
    """A value of the provenance in Markdown: a list as its items, counts as "60 complete, 1 incomplete"; "none" if
    empty, "not recorded" for None."""
    if isinstance(value, dict):
        return ", ".join(f"{number} {escaped(name.replace('_', ' '))}" for name, number in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(escaped(item) for item in value) or "none"
    return "not recorded" if value is None else escaped(value)
