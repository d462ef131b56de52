"""The documents that answer the questions, in Markdown, made from the summary tables with Jinja.

A template arranges a document; its sentences, tables and definitions come from the folder of the question. Machines are
never mixed: each has its own section in every document. Every document says what was not measured, and why.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType

import jinja2
import pandas as pd

from kernel_tables.markdown import code, escaped, pipe_table
from profile_grid.documents.definitions import needed_for
from profile_grid.quantities import known, memory, percent
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY, UNSUPPORTED
from profile_grid.study import catalogue
from profile_grid.study.catalogue import Question
from profile_grid.study.dimensions import MODEL
from profile_grid.study.stage import Stage
from profile_grid.study.stages import NOT_ASKED, STAGES, TIMING
from profile_grid.tables import cells, evidence
from profile_grid.tables.evidence import LAUNCH_BOUND_SHARE
from profile_grid.tables.measured import Machine, Measured, by_machine, command_to_measure_again, measured_on
from profile_grid.tables.wording import (
    MAX_BULLETS,
    VERDICTS,
    Claim,
    listed,
    named_keys,
    of_all,
    pytorch_reason,
    run_in_words,
)

MAX_WITH_BYTES = 3  # runs whose missing bytes are listed
STAGE_NAMES = "|".join(stage.name for stage in STAGES)
LEAD = rf"(?:{STAGE_NAMES})(?: and (?:{STAGE_NAMES}))*: "  # the stages that a part of a reason is about


def not_measured(runs: pd.DataFrame, stages: Sequence[Stage] = STAGES) -> list[str]:
    """Why runs have no results of these stages: each reason once with its runs; for memory, how much was requested and
    free, if the runs are few."""
    lacking = [row for row in runs.to_dict("records") if _failed(row, stages)]
    with_bytes = len(lacking) <= MAX_WITH_BYTES
    return _with_runs(((row, [_reason(row, stages, with_bytes)]) for row in lacking), runs, len(runs))


def run_notes(runs: pd.DataFrame) -> list[str]:
    """The notes on runs that have results, each once with its runs."""
    everywhere = [stage.status_column for stage in STAGES if stage.of_every_run]
    every, runs = len(runs), runs[runs[everywhere].isin((COMPLETE, NOT_ASKED)).all(axis=1)]
    notes = ((row, map(escaped, row["note"].split("; "))) for row in runs[runs["note"].notna()].to_dict("records"))
    return _with_runs(notes, runs, len(runs), "run" if len(runs) == every else "complete run")


def _with_runs(
    texts_by_run: Iterable[tuple[dict, Iterable[str]]], runs: pd.DataFrame, every: int, noun: str = "run"
) -> list[str]:
    """Each text once with its run, or the number of its runs of `every`. The table `runs` has all."""
    named = named_keys(runs)
    names: dict[str, list[str]] = {}
    for row, texts in texts_by_run:
        for text in texts:
            names.setdefault(text, []).append(run_in_words(row, named))
    return [f"{some[0] if len(some) == 1 else of_all(len(some), every, noun)}: {text}" for text, some in names.items()]


def _failed(row: dict, stages: Sequence[Stage]) -> dict[str, str]:
    """The stages that gave the run no result, with their statuses."""
    statuses = {stage.name: row[stage.status_column] for stage in stages}
    return {stage: status for stage, status in statuses.items() if status not in (COMPLETE, NOT_ASKED)}


def _reason(row: dict, stages: Sequence[Stage], with_bytes: bool) -> str:
    failed = _failed(row, stages)
    ended = {status: [stage for stage in failed if failed[stage] == status] for status in failed.values()}
    if set(ended) == {OUT_OF_MEMORY}:
        return _memory(row, with_bytes)
    known_reason = known(row.get("reason"))
    reason = escaped(_reason_of(row["reason"], failed)) if known_reason else "no reason was recorded"
    if set(ended) == {UNSUPPORTED}:
        return f"not supported here: {pytorch_reason(reason)}"
    outcomes = ", ".join(f"{' and '.join(stages)} {escaped(status)}" for status, stages in ended.items())
    return f"{outcomes}: {reason}"


def _reason_of(reason: str, stages: Collection[str]) -> str:
    """The parts of a reason that concern these stages, or no stage in particular."""
    parts = re.split(f"; (?={LEAD})", reason)
    leads = [match and {*match[0][:-2].split(" and ")} for match in (re.match(LEAD, part) for part in parts)]
    return "; ".join(part for part, lead in zip(parts, leads, strict=True) if lead is None or lead & {*stages})


def _memory(row: dict, with_bytes: bool) -> str:
    during = f" in {escaped(_moment(row['oom_during']))}" if known(row.get("oom_during")) else ""
    if not with_bytes:
        return f"out of memory{during}"
    requested, free = memory(row.get("oom_requested_bytes")), memory(row.get("oom_free_bytes"))
    if requested == free and known(row.get("oom_free_bytes")):
        requested, free = (f"{row[name] / 2**20:,.1f} MiB" for name in ("oom_requested_bytes", "oom_free_bytes"))
    total = memory(row.get("oom_total_bytes"))
    return f"out of memory{during}: {requested} requested, {free} free of {total}"


def _moment(during: str) -> str:
    """A moment of the measured program in words: "warm-up step 0 (forward)"."""
    moment, _, phase = during.replace("initialise", "initialization").replace("warmup", "warm-up").partition(": ")
    return f"{moment} ({phase})" if phase else moment


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

    @property
    def models(self) -> str:
        """The models with known sizes, in words: "small (12 layers, d_model 768, d_ff 3072, 12 heads)"."""
        rows = self.measured.runs.drop_duplicates(MODEL.key).to_dict("records")
        return "; ".join(f"{escaped(row[MODEL.key])} ({sizes})" for row in rows if (sizes := _sizes(row)))

    def not_measured(self, question: Question | None = None) -> list[str]:
        """Why runs lack figures: of what the question's document shows, or of everything."""
        stages = STAGES if question is None else question.stages
        return not_measured(self._runs_of(question), stages)

    def notes(self, question: Question | None = None) -> list[str]:
        """The notes on runs that the question's document shows, or on all."""
        return run_notes(self._runs_of(question))

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

    def legend(self, markdown: str) -> list[tuple[str, str]]:
        """Short and full name of every kernel that this Markdown mentions by its short name, the longest time first."""
        labels = [(self.measured.label(name), name) for name in self.measured.short_names]
        return [(label, name) for label, name in labels if label in markdown and label.startswith("**")]


def _sizes(row: dict) -> str:
    """The sizes of a run's model; empty if they have other names."""
    names = ("num_layers", "d_model", "d_ff", "num_heads")
    if not all(known(row.get(name)) for name in names):
        return ""
    layers, width, inner, heads = (int(row[name]) for name in names)
    return f"{layers} layers, d_model {width}, d_ff {inner}, {heads} heads"


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
        "modules": {name: _module(name) for name in answered},
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
    sentences = {question: _module(question).sentences(measured)[: 1 + MAX_BULLETS] for question in questions}
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
    environment.filters |= {"escaped": escaped, "code": code, "introduced": introduced, "percent": percent}
    environment.filters |= {"facts": facts, "outcomes": outcomes, "needed_for": needed_for}
    environment.globals |= {"evidence": evidence, "LAUNCH_BOUND_SHARE": LAUNCH_BOUND_SHARE}
    return environment


def _module(question: str) -> ModuleType:
    """The module `document` of a question."""
    return import_module(f"profile_grid.questions.{question}.document")


def introduced(parts: Iterable[cells.Part]) -> str:
    """The parts in Markdown: paragraphs, and tables below their introductions; not those that are None or without
    rows."""
    return "\n\n".join(
        part if isinstance(part, str) else f"{part[0]}:\n\n{pipe_table(part[1])}"
        for part in parts
        if isinstance(part, str) or (part[1] and part[1].rows)
    )


def outcomes(counts: dict[str, int] | None, stages: str) -> str:
    """How the stages of the runs ended, in words: "timing and capture: 60 complete, 1 out of memory; memory: ..."."""
    if counts is None:
        return "how their stages ended was not recorded"
    stages_by_outcome: dict[str, list[str]] = {}
    for place, stage in enumerate(stages.split(" / ")):
        ended: dict[str, int] = {}
        for statuses, number in counts.items():
            status = (statuses.split(" / ") + ["unknown"] * (place + 1))[place]  # an archive may hold anything
            words = "not requested" if status == NOT_ASKED else status.replace("_", " ")
            ended[words] = ended.get(words, 0) + number
        outcome = ", ".join(f"{number} {escaped(words)}" for words, number in ended.items())
        stages_by_outcome.setdefault(outcome, []).append(escaped(stage.replace("_", " ")))
    return "; ".join(f"{listed(names)}: {outcome}" for outcome, names in stages_by_outcome.items())


def facts(value) -> str:
    """A provenance value in Markdown: a list as its items, counts as "60 complete, 1 incomplete"; "none" if empty, "not
    recorded" for None."""
    if isinstance(value, dict):
        return ", ".join(f"{number} {escaped(name.replace('_', ' '))}" for name, number in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(escaped(item) for item in value) or "none"
    return "not recorded" if value is None else escaped(value)
