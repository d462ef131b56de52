"""Three files of the example, made from its tables: the overview (docs/example-h200/README.md), all sentences, and how
much the times of runs differ that several studies measured. A smaller difference between studies means nothing.
"""

import csv
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jinja2
import pandas as pd

from docs.examples import EXAMPLES, H200, MAIN_STUDY, MODEL_SIZES, STUDIES, WORK_COLUMNS, Example, comparisons
from profile_grid.comparing.document import summary
from profile_grid.documents.documents import section
from profile_grid.quantities import percent
from profile_grid.questions.time_lost.document import count_within_bound, template_of_count
from profile_grid.study.catalogue import QUESTIONS
from profile_grid.study.dimensions import CONTEXT_LENGTH, EVERY_DIMENSION
from profile_grid.tables.evidence import HOST_BOUND_WAITING
from profile_grid.tables.measured import by_machine
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged
from profile_grid.tables.wording import Claim

TEMPLATE = Path(__file__).with_name("overview.md.j2")
README, SENTENCES, AGREEMENT = H200 / "README.md", H200 / "sentences.csv", H200 / "agreement.csv"


def overview() -> str:
    """The README of the example."""
    answers = {example.folder.name: answers_of(example) for example in EXAMPLES}
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        provenance=MAIN_STUDY.provenance(),
        runs=MAIN_STUDY.merged()["runs"],
        studies=[*_studies(answers)],
        agreement=claims_on_agreement(agreement()),
        comparisons={path.name: summary(pd.read_parquet(path / "cells.parquet"))[0] for path in comparisons()},
        remedies=_remedies_within_bounds(),
        process_counts=_process_counts(),
    )


@cache
def answers_of(example: Example) -> dict[str, list[Claim]]:
    """By question, the sentences of an example's documents, for all its machines."""
    tables = example.tables()
    runs = tables["runs"]
    questions = example.answered_questions(runs)
    sections = [section(*machine, runs, tables, questions, example.links()) for machine in by_machine(runs)]
    return {name: [claim for part in sections for claim in part.sentences[name]] for name in questions}


def sentences() -> str:
    """All sentences of the example as CSV: study, question, place, rule, sentence, and its numbers as JSON."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("study", "question", "place", "rule", "sentence", "numbers"))
    for example in EXAMPLES:
        for question, claims in answers_of(example).items():
            for place, claim in enumerate(claims):
                numbers = json.dumps(claim.numbers, ensure_ascii=False)
                writer.writerow((example.folder.name, question, place, claim.rule, str(claim), numbers))
    return buffer.getvalue()


def _studies(answers: dict[str, dict[str, list[Claim]]]) -> Iterator[dict]:
    """One entry per study and question that it is about: the columns of the table of studies in TEMPLATE."""
    for example in STUDIES:
        runs, study = example.merged()["runs"], example.folder.name
        for question in (question for question in QUESTIONS if question.name in example.questions):
            document = example.document_of(question.name)
            figures = [name for name in question.figures if (example.folder / "figures" / f"{name}.svg").exists()]
            yield {
                "study": study, "heading": question.heading, "document": f"{study}/answers/{document}.md",
                "answer": answers[study][question.name][0], "runs": len(runs), "varies": _varying(example),
                "figure": f"{study}/figures/{figures[0]}.svg" if figures else None,
            }  # fmt: skip


def _varying(example: Example) -> str:
    """The dimensions that vary in a study: "model, mode, precision". A run of attention alone has several rows in the
    table `attention_sweep`, because it varies the context."""
    runs, tables = example.merged()["runs"], example.tables()
    varying = {dimension.key: runs[dimension.key].nunique() > 1 for dimension in EVERY_DIMENSION}
    varying[CONTEXT_LENGTH.key] |= "attention_sweep" in example.questions and len(tables["attention_sweep"]) > len(runs)
    return ", ".join(dimension.heading for dimension in EVERY_DIMENSION if varying[dimension.key]) or "nothing"


def _process_counts() -> list[str]:
    """The studies in which runs were timed in several processes, each with the largest number: "in `energy`: in 6"."""
    counts = {example.folder.name: example.merged()["runs"]["processes_timed"].max() for example in EXAMPLES}
    return [f"in `{study}`: in {count:.0f}" for study, count in counts.items() if count > 1]


def _remedies_within_bounds() -> Claim:
    """How many remedies all studies measured, and how many saved no more than was predicted."""
    tables = [example.tables()["predictions"] for example in EXAMPLES if "findings" in example.merged_names]
    tables = [table for table in tables if len(table)]
    predictions = pd.concat(tables)
    within, count = count_within_bound(predictions), len(predictions)
    slower = int((predictions["measured_percent"] < 0).sum())
    text = " remedies (runs with a setting that a finding advises) measured in {studies} studies saved no more than"
    text += " their bounds, which follow from the diagnosis when the study was measured; {slower} took more time."
    numbers = {"held": within, "all": count, "studies": len(tables), "slower": slower}
    return Claim(template_of_count(within, count) + text, "counted", **numbers)


def agreement() -> pd.DataFrame:
    """One row per run that several studies timed: the number of studies, the shortest and the longest mean step, the
    ratio of these, and the least share of a step in which the GPU waits."""
    times = pd.concat([_steps(example.folder.name, Merged(example.merged())) for example in EXAMPLES])
    groups = times.groupby(WORK_COLUMNS, sort=False)
    table = groups.agg(
        models=("model", lambda names: ", ".join(dict.fromkeys(names))), studies=("study", "nunique"),
        least_ms=("mean_ms", "min"), most_ms=("mean_ms", "max"), waiting_share=("waiting_share", "min"),
    )  # fmt: skip
    table = table[table["studies"] > 1].reset_index()
    return table.assign(ratio=table["most_ms"] / table["least_ms"]).round(4)


def _steps(study: str, merged: Merged) -> pd.DataFrame:
    """One row per timed run of a study: its work, its mean step, and the share of it in which the GPU waits."""
    timings, runs = merged["timings"], merged["runs"]
    columns = [*WORK_COLUMNS, "model", "study", "mean_ms", "waiting_share"]
    if timings.empty:
        return pd.DataFrame(columns=columns)
    steps = timings[(timings["phase"] == WHOLE_STEP) & timings["mean_ms"].notna()]
    steps = steps.merge(runs[["run", *MODEL_SIZES]], on="run")
    waiting = steps["run"].astype("str").map(merged.waiting_share)
    return steps.assign(study=study, waiting_share=waiting)[columns]


def claims_on_agreement(table: pd.DataFrame) -> list[Claim]:
    """How much studies differ where the GPU hardly waits, and elsewhere; and which names belong to one model."""
    claims = []
    is_host_bound = table["waiting_share"] >= HOST_BOUND_WAITING
    limit = percent(HOST_BOUND_WAITING)
    for waiting, rows in ((f"less than {limit}", table[~is_host_bound]), (f"{limit} or more", table[is_host_bound])):
        claims.append(
            Claim(
                "If the GPU is idle for {waiting} of a step, times of the same run differ by {median} (median of {runs}"
                " runs), and by at most {most}.",
                waiting=waiting, runs=len(rows), median=percent(rows["ratio"].median() - 1),
                most=percent(rows["ratio"].max() - 1),
            )
        )  # fmt: skip
    for names in dict.fromkeys(table.loc[table["models"].str.contains(","), "models"]):
        claims.append(Claim("{names} are the same model.", names=names.replace(", ", " and ")))
    return claims
