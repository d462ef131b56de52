"""The documents that answer the questions, in Markdown, made from the summary tables with Jinja.

A template arranges a document; its sentences, tables and definitions come from the folder of the question. Machines are
never mixed: each has its own section in every document. Every document also says what was not measured, and why.
"""

import re
from collections import Counter
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

MAX_WITH_BYTES = 3  # runs without results; of more, the requested and the free bytes are not listed
STAGE_NAMES = "|".join(stage.name for stage in STAGES)
STAGES_OF_REASON = rf"(?:{STAGE_NAMES})(?: and (?:{STAGE_NAMES}))*: "  # begins a part of a reason


def not_measured(runs: pd.DataFrame, stages: Sequence[Stage] = STAGES) -> list[str]:
    """Why runs have no results of these stages: each reason once with its runs. Of at most MAX_WITH_BYTES such
    runs, those out of memory have the requested and the free bytes."""
    failed_rows = [row for row in runs.to_dict("records") if _failed_stages(row, stages)]
    with_bytes = len(failed_rows) <= MAX_WITH_BYTES
    return _with_runs(((row, [_reason(row, stages, with_bytes)]) for row in failed_rows), runs)


def run_notes(runs: pd.DataFrame) -> list[str]:
    """The notes on runs that have results, each once with its runs."""
    columns = [stage.status_column for stage in STAGES if stage.of_every_run]
    complete = runs[runs[columns].isin((COMPLETE, NOT_ASKED)).all(axis=1)]
    rows = complete[complete["note"].notna()].to_dict("records")
    notes = ((row, map(escaped, row["note"].split("; "))) for row in rows)
    return _with_runs(notes, complete, "run" if len(complete) == len(runs) else "complete run")


def _with_runs(texts_of_rows: Iterable[tuple[dict, Iterable[str]]], runs: pd.DataFrame, noun: str = "run") -> list[str]:
    """Each text once, after its run, or the number of its runs among all `runs`."""
    named = named_keys(runs)
    names_by_text: dict[str, list[str]] = {}
    for row, texts in texts_of_rows:
        for text in texts:
            names_by_text.setdefault(text, []).append(run_in_words(row, named))
    return [
        f"{names[0] if len(names) == 1 else of_all(len(names), len(runs), noun)}: {text}"
        for text, names in names_by_text.items()
    ]


def _failed_stages(row: dict, stages: Sequence[Stage]) -> dict[str, str]:
    """The stages that gave the run no result, with their statuses."""
    statuses = {stage.name: row[stage.status_column] for stage in stages}
    return {stage: status for stage, status in statuses.items() if status not in (COMPLETE, NOT_ASKED)}


def _reason(row: dict, stages: Sequence[Stage], with_bytes: bool) -> str:
    failed_stages = _failed_stages(row, stages)
    names_by_status: dict[str, list[str]] = {}
    for name, status in failed_stages.items():
        names_by_status.setdefault(status, []).append(name)
    if set(names_by_status) == {OUT_OF_MEMORY}:
        return _memory(row, with_bytes)
    recorded = known(row.get("reason"))
    reason = escaped(_reason_of_stages(row["reason"], failed_stages)) if recorded else "no reason was recorded"
    if set(names_by_status) == {UNSUPPORTED}:
        return f"not supported here: {pytorch_reason(reason)}"
    outcomes = ", ".join(f"{' and '.join(names)} {escaped(status)}" for status, names in names_by_status.items())
    return f"{outcomes}: {reason}"


def _reason_of_stages(reason: str, stages: Collection[str]) -> str:
    """The parts of a reason that are about these stages, or about no stage in particular."""
    parts = []
    for part in re.split(f"; (?={STAGES_OF_REASON})", reason):
        match = re.match(STAGES_OF_REASON, part)
        if match is None or not {*match[0].removesuffix(": ").split(" and ")}.isdisjoint(stages):
            parts.append(part)
    return "; ".join(parts)


def _memory(row: dict, with_bytes: bool) -> str:
    """That memory ran out, and when; with the requested and the free bytes if `with_bytes`."""
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
ALL_ANSWERS = "answers"
TITLE = "Where the time of a Transformer goes"  # of the document with all answers


@dataclass(frozen=True)
class Section:
    """What the templates show of one machine."""

    machine: Machine
    measured: Measured
    sentences: dict[str, list[Claim]]  # by question: the answer, then the bullets
    command_to_measure_again: str

    @property
    def models(self) -> str:
        """The models with known sizes, in words: "small (12 layers, d_model 768, d_ff 3072, 12 heads)"."""
        rows = self.measured.runs.drop_duplicates(MODEL.key).to_dict("records")
        return "; ".join(f"{escaped(row[MODEL.key])} ({sizes})" for row in rows if (sizes := _sizes(row)))

    def not_measured(self, question: Question | None = None) -> list[str]:
        """Why runs have no results: those that the question's document shows, or all."""
        return not_measured(self._runs_of(question), STAGES if question is None else question.stages)

    def notes(self, question: Question | None = None) -> list[str]:
        """The notes on the runs that the question's document shows, or on all."""
        return run_notes(self._runs_of(question))

    def first_verdict(self, questions: Iterable[Question]) -> str | None:
        """The first of the questions with a sentence that rests on the differences between processes."""
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
        return [(label, name) for label, name in labels if label in markdown and label.startswith("**")]


def _sizes(row: dict) -> str:
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
    links: Mapping[str, Claim] = MappingProxyType({}),
) -> dict[str, str]:
    """The documents with these names (without suffix): one per question, and ALL_ANSWERS; by default those that the
    runs can answer. `links`: by question, a sentence with a link to other results, which replaces a missing
    answer."""
    answerable = document_names(runs)
    names = [*answerable, ALL_ANSWERS] if names is None else list(names)
    answered = answerable if ALL_ANSWERS in names else names
    context = {
        "sections": [
            section(machine, run_names, runs, summaries, answered, links) for machine, run_names in by_machine(runs)
        ],
        "provenance": provenance,
        "links": links,
        "modules": {name: _module(name) for name in answered},
    }
    template = template_environment().get_template("document.md.j2")
    questions = {question.name: question for question in catalogue.QUESTIONS}
    rendered = {}
    for name in names:
        is_all = name == ALL_ANSWERS
        shown = [questions[question] for question in (answerable if is_all else [name])]
        text = template.render(**context, title=TITLE if is_all else "", questions=shown)
        rendered[name] = re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
    return rendered


def document_names(runs: pd.DataFrame) -> list[str]:
    """The names of the questions with a document that these runs can answer."""
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
    missing answer is replaced by the link of its question, if `links` has one."""
    questions = document_names(runs) if questions is None else questions
    measured = measured_on(machine, names, runs, summaries)
    sentences = {question: _module(question).sentences(measured)[: 1 + MAX_BULLETS] for question in questions}
    for question in sentences.keys() & links.keys():
        if sentences[question][0].rule == "missing":
            sentences[question] = [links[question]]
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
    environment.filters |= {"escaped": escaped, "code": code, "introduced": introduced, "percent": percent}
    environment.filters |= {"facts": facts, "outcomes": outcomes, "needed_for": needed_for}
    environment.globals |= {"evidence": evidence, "LAUNCH_BOUND_SHARE": LAUNCH_BOUND_SHARE}
    return environment


def _module(question: str) -> ModuleType:
    """The module `document` of a question."""
    return import_module(f"profile_grid.questions.{question}.document")


def introduced(parts: Iterable[cells.Part]) -> str:
    """The parts in Markdown: paragraphs, and tables below their introductions; without tables that are None or have no
    rows."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        elif part[1] and part[1].rows:
            texts.append(f"{part[0]}:\n\n{pipe_table(part[1])}")
    return "\n\n".join(texts)


def outcomes(counts: dict[str, int] | None, stages: str) -> str:
    """How the stages of the runs ended, in words: "timing and capture: 60 complete, 1 out of memory; memory: ...".
    `stages` are their names, and each key of `counts` their statuses, joined by " / "."""
    if counts is None:
        return "how their stages ended was not recorded"
    names_by_outcome: dict[str, list[str]] = {}
    for index, stage in enumerate(stages.split(" / ")):
        totals: Counter[str] = Counter()
        for statuses, number in counts.items():
            status = dict(enumerate(statuses.split(" / "))).get(index, "unknown")  # an archive may hold anything
            totals["not requested" if status == NOT_ASKED else status.replace("_", " ")] += number
        outcome = ", ".join(f"{number} {escaped(words)}" for words, number in totals.items())
        names_by_outcome.setdefault(outcome, []).append(escaped(stage.replace("_", " ")))
    return "; ".join(f"{listed(names)}: {outcome}" for outcome, names in names_by_outcome.items())


def facts(value: object) -> str:
    """A value of the provenance in Markdown: a list as its items, counts as "60 complete, 1 incomplete"; "none" if
    empty, "not recorded" for None."""
    if isinstance(value, dict):
        return ", ".join(f"{number} {escaped(name.replace('_', ' '))}" for name, number in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(escaped(item) for item in value) or "none"
    return "not recorded" if value is None else escaped(value)
