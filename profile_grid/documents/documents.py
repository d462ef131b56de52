"""The documents that answer the questions, in Markdown, made from the summary tables with Jinja.

A template arranges a document; its sentences and tables come from the folder of the question. Machines are never mixed:
each has its own section in every document.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType

import jinja2
import pandas as pd

from kernel_tables.markdown import code, escaped, pipe_table
from profile_grid.documents.missing import not_measured, noted
from profile_grid.quantities import count, interval, percent
from profile_grid.results.results import COMPLETE
from profile_grid.study import catalogue
from profile_grid.study.catalogue import Question
from profile_grid.study.stages import STAGES, TIMING
from profile_grid.tables import evidence
from profile_grid.tables.claims import MOST_BULLETS, VERDICTS, Claim
from profile_grid.tables.evidence import LAUNCH_BOUND_SHARE
from profile_grid.tables.machines import Machine, by_machine, command_to_measure_again
from profile_grid.tables.measured import Measured, measured_on

TEMPLATES = Path(__file__).with_name("templates")
QUESTION_FOLDERS = Path(__file__).parents[1] / "questions"
ALL = "answers"
TITLE = "Where the time of a Transformer goes"  # of the document that holds them all
NAMES = (*catalogue.DOCUMENTS, ALL)


@dataclass(frozen=True)
class Section:
    """What a template reads of one machine: its tables, its missing runs, and per question the sentences: the answer,
    then bullets."""

    machine: Machine
    measured: Measured
    sentences: dict[str, list[Claim]]
    command_to_measure_again: str

    def not_measured(self, question: Question | None = None) -> list[str]:
        """Why runs lack figures: of what the question's document shows, or of everything."""
        stages = STAGES if question is None else question.stages
        return not_measured(self._runs_of(question), stages)

    def notes(self, question: Question | None = None) -> list[str]:
        """The notes on runs that the question's document shows, or on all."""
        return noted(self._runs_of(question))

    def first_verdict(self, questions: Iterable[Question]) -> str | None:
        """The first of the questions with a sentence that rests on the differences between processes."""
        answers = ((question.name, self.sentences[question.name]) for question in questions)
        return next((name for name, claims in answers if any(claim.rule in VERDICTS for claim in claims)), None)

    @property
    def processes(self) -> tuple[int, int]:
        """The fewest and the most processes that timed a run."""
        runs = self.measured.runs
        timed = runs.loc[runs[TIMING.status_column] == COMPLETE, "processes_timed"].fillna(1)
        return (int(timed.min()), int(timed.max())) if len(timed) else (1, 1)

    def _runs_of(self, question: Question | None) -> pd.DataFrame:
        runs = self.measured.runs
        return runs if question is None else runs[[question.shows(run) for run in runs.to_dict("records")]]

    @property
    def steps(self) -> tuple[str, str]:
        """How many steps were timed, and how many captured."""
        runs = self.measured.runs
        timed, captured = (runs[name].replace(0, None) for name in ("steps_timed", "steps_captured"))
        return interval(timed, count), interval(captured, count)

    def legend(self, markdown: str) -> list[tuple[str, str]]:
        """Short and full name of every kernel that this Markdown mentions by its short name, the longest time first."""
        labels = [(self.measured.label(name), name) for name in self.measured.short_names]
        return [(label, name) for label, name in labels if label in markdown and label.startswith("**")]


def documents(
    summaries: Mapping[str, pd.DataFrame],
    runs: pd.DataFrame,
    provenance: dict,
    names: Iterable[str] | None = None,
    links: Mapping[str, Claim] = MappingProxyType({}),
) -> dict[str, str]:
    """The documents of these names, without suffix: one per question, and one with all of them; by default those that
    the runs can answer. `links`: by question a sentence with a link to other results on it, or their answer, if these
    runs have none."""
    asked = asked_of(runs)
    names = [*asked, ALL] if names is None else list(names)
    answered = asked if ALL in names else names
    context = {
        "sections": [
            section(machine, run_names, runs, summaries, answered, links) for machine, run_names in by_machine(runs)
        ],
        "provenance": provenance,
        "links": links,
        "tables_of": {name: _module(name) for name in answered},
    }
    template = template_environment().get_template("document.md.j2")
    by_name = {question.name: question for question in catalogue.QUESTIONS}
    contents = {name: ("", [by_name[name]]) for name in answered}
    contents[ALL] = (TITLE, [by_name[name] for name in asked])
    rendered = {
        name: template.render(**context, title=contents[name][0], questions=contents[name][1]) for name in names
    }
    return {name: re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" for name, text in rendered.items()}


def asked_of(runs: pd.DataFrame) -> list[str]:
    """The questions with a document that these runs can answer, by name."""
    return [question.name for question in catalogue.questions_asked(runs.to_dict("records")) if question.has_document]


def section(
    machine: Machine,
    names: list[str],
    runs: pd.DataFrame,
    summaries: Mapping[str, pd.DataFrame],
    questions: Iterable[str] | None = None,
    links: Mapping[str, Claim] = MappingProxyType({}),
) -> Section:
    """The section of one machine in the documents of these questions, by default of all that the runs can answer. A
    link of `documents` replaces an answer that is missing."""
    questions = asked_of(runs) if questions is None else questions
    measured = measured_on(machine, names, runs, summaries)
    sentences = {question: _module(question).sentences(measured)[: 1 + MOST_BULLETS] for question in questions}
    for question in sentences.keys() & links.keys():
        if sentences[question][0].rule == "missing":
            sentences[question] = [links[question]]
    return Section(machine, measured, sentences, command_to_measure_again(measured.runs))


def template_environment() -> jinja2.Environment:
    """Jinja for Markdown: an unknown name in a template is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([TEMPLATES, QUESTION_FOLDERS]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # that is for HTML: names go through `escaped` or `code`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"escaped": escaped, "code": code, "pipe_table": pipe_table, "facts": facts}
    environment.filters["percent"] = percent
    environment.globals |= {"evidence": evidence, "LAUNCH_BOUND_SHARE": LAUNCH_BOUND_SHARE}
    return environment


def _module(question: str) -> ModuleType:
    """The module `document` of a question."""
    return import_module(f"profile_grid.questions.{question}.document")


def facts(value) -> str:
    """A provenance value in Markdown: a list as its items, counts as "60 complete, 1 incomplete"; "none" if empty, "not
    recorded" for None."""
    if isinstance(value, dict):
        return ", ".join(f"{number} {escaped(name.replace('_', ' '))}" for name, number in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(escaped(item) for item in value) or "none"
    return "not recorded" if value is None else escaped(value)
