"""The documents that answer the five questions, in Markdown, from the summary tables: the home of Jinja.

A template says what stands where; sentences come from `statements`, tables from `answer_tables`. Figures of several
machines never share a table: every machine has a part of its own in each document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pandas as pd

from profile_grid.answers import answer_tables as tables
from profile_grid.answers import statements
from profile_grid.answers.timing_statements import LAUNCH_BOUND_IDLE_SHARE, forward_time_sentences
from profile_grid.documents.missing import lacking_sentence, not_measured, noted
from profile_grid.markdown import code, escaped, pipe_table
from profile_grid.merging.machines import Machine, by_machine, command_to_measure_again
from profile_grid.quantities import count, interval
from profile_grid.tables.measured import Measured, measured
from profile_grid.tables.shares import NON_TRIVIAL_SHARE
from profile_grid.tables.summary import MATCH_TOLERANCE

TEMPLATES = Path(__file__).with_name("templates")
QUESTION_FOLDERS = Path(__file__).parents[1] / "questions"
QUESTIONS = {
    "a_forward_time": forward_time_sentences,
    "b_top_kernels": statements.top_kernel_sentences,
    "c_other_kernels": statements.other_kernel_sentences,
    "d_training_vs_inference": statements.class_share_sentences,
    "e_attention": statements.attention_sentences,
}
ALL = "answers"
NAMES = (*QUESTIONS, ALL)


@dataclass(frozen=True)
class Part:
    """What a template sees of one machine: its figures and its missing runs."""

    machine: Machine
    of: Measured
    sentences: dict[str, list[str]]
    not_measured: list[str]
    notes: list[str]
    command_to_measure_again: str

    @property
    def steps(self) -> tuple[str, str]:
        """How many steps were timed, and how many captured."""
        times = self.of.tables["forward_time"]
        return interval(times["steps_timed"].replace(0, None), count), interval(times["steps_captured"], count)

    def legend(self, markdown: str) -> list[tuple[str, str]]:
        """Label and full name of every kernel that this text mentions, in the order of the labels."""
        labels = [(self.of.label(name), name) for name in self.of.labels]
        return [(label, name) for label, name in labels if label in markdown and label.startswith("**")]


def documents(
    summaries: dict[str, pd.DataFrame], runs: pd.DataFrame, provenance: dict, names: Iterable[str] = NAMES
) -> dict[str, str]:
    """The documents of these names, without suffix: one per question, and one that holds them all."""
    parts = [part(machine, names, runs, summaries) for machine, names in by_machine(runs)]
    environment, seen = template_environment(), {"parts": parts, "provenance": provenance}
    single = environment.get_template("document.md.j2")
    rendered = {
        name: environment.get_template("answers.md.j2").render(**seen, questions=list(QUESTIONS))
        if name == ALL
        else single.render(**seen, question=name)
        for name in names
    }
    return {name: re.sub(r"\n{3,}", "\n\n", text).strip() + "\n" for name, text in rendered.items()}


def part(machine: Machine, names: list[str], runs: pd.DataFrame, summaries: dict[str, pd.DataFrame]) -> Part:
    """One machine's part of every document."""
    of = measured(machine, names, runs, summaries)
    lacking = lacking_sentence(of.runs)
    sentences = {question: [*sentences_of(of), *lacking] for question, sentences_of in QUESTIONS.items()}
    return Part(machine, of, sentences, not_measured(of.runs), noted(of.runs), command_to_measure_again(names))


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
    environment.globals |= {
        "tables": tables,
        "tolerance": MATCH_TOLERANCE,
        "launch_bound_idle": LAUNCH_BOUND_IDLE_SHARE,
        "non_trivial": NON_TRIVIAL_SHARE,
    }
    return environment


def facts(value) -> str:
    """A provenance value in Markdown: a list as its items, counts as "60 complete, 1 incomplete", nothing as such."""
    if isinstance(value, dict):
        return ", ".join(f"{number} {escaped(name)}" for name, number in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(escaped(item) for item in value) or "none"
    return "not recorded" if value is None else escaped(value)
