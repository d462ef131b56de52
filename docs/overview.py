"""The overview of the example, docs/example-h200/README.md, the list of all its sentences, and how much its studies
differ where they measured the same run, the floor for claims between them: all made of its tables."""

import csv
import io
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jinja2
import pandas as pd

from docs.examples import EXAMPLES, H200, SIZES, WHOLE, WORK, Example, comparisons
from profile_grid.comparing.document import summary
from profile_grid.documents.documents import section
from profile_grid.quantities import percent
from profile_grid.questions.time_lost.document import remedies, within_bound
from profile_grid.study.catalogue import QUESTIONS
from profile_grid.study.dimensions import EVERY_DIMENSION
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
        provenance=WHOLE.provenance(),
        runs=WHOLE.merged()["runs"],
        studies=[*_studies(answers)],
        agreement=claims_on_agreement(agreement()),
        comparisons={kept.name: summary(pd.read_parquet(kept / "cells.parquet"))[0] for kept in comparisons()},
        held=_held(),
        several=_several_processes(),
    )


@cache
def answers_of(example: Example) -> dict[str, list[Claim]]:
    """By question the sentences of an example's documents, of all its machines."""
    tables = example.tables()
    runs = tables["runs"]
    asked = example.asked(runs)
    sections = [section(*machine, runs, tables, asked, example.links()) for machine in by_machine(runs)]
    return {name: [claim for part in sections for claim in part.sentences[name]] for name in asked}


def sentences() -> str:
    """All sentences of the example as CSV: study, question, place, rule, sentence, and its numbers as JSON."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("study", "question", "place", "rule", "sentence", "numbers"))
    for example in EXAMPLES:
        for question, said in answers_of(example).items():
            for place, claim in enumerate(said):
                numbers = json.dumps(claim.numbers, ensure_ascii=False)
                rows.writerow((example.folder.name, question, place, claim.rule, str(claim), numbers))
    return text.getvalue()


def _studies(answers: dict[str, dict[str, list[Claim]]]) -> Iterator[dict]:
    """One entry per question that a study is about: its heading and document, its answer, and a figure."""
    for example in EXAMPLES[1:]:
        runs, name = example.merged()["runs"], example.folder.name
        for question in (asked for asked in QUESTIONS if asked.name in example.questions):
            document = example.document_of(question.name)
            drawn = [figure for figure in question.figures if (example.folder / "figures" / f"{figure}.svg").exists()]
            yield {
                "study": name, "heading": question.heading, "document": f"{name}/answers/{document}.md",
                "answer": answers[name][question.name][0], "runs": len(runs), "varies": _varying(runs),
                "figure": f"{name}/figures/{drawn[0]}.svg" if drawn else None,
            }  # fmt: skip


def _varying(runs: pd.DataFrame) -> str:
    """The dimensions that vary in a study: "model, mode, precision"."""
    return ", ".join(key.heading for key in EVERY_DIMENSION if runs[key.key].nunique() > 1) or "nothing"


def _several_processes() -> list[str]:
    """The studies that timed each run in several processes, with their number."""
    timed = {example.folder.name: example.merged()["runs"]["processes_timed"].max() for example in EXAMPLES}
    return [f"in `{study}`: in {number:.0f}" for study, number in timed.items() if number > 1]


def _held() -> Claim:
    """How many remedies all studies measured, and how many gained no more than was predicted."""
    tables = [example.tables()["predictions"] for example in EXAMPLES if "findings" in example.merged_names]
    every = pd.concat([table for table in tables if len(table)])
    studies = sum(1 for table in tables if len(table))
    held, number = within_bound(every), len(every)
    text = " remedies (runs with a setting that a finding advises) measured in {studies} studies saved no more than"
    text += " their bounds, which follow from the diagnosis."
    return Claim(remedies(held, number) + text, "counted", held=held, all=number, studies=studies)


def agreement() -> pd.DataFrame:
    """One row per run that several studies timed: how many, the shortest and the longest mean step, their ratio, and
    the part of the shortest in which the GPU waits."""
    times = pd.concat([_steps(example.folder.name, Merged(example.merged())) for example in EXAMPLES])
    groups = times.groupby(WORK, sort=False)
    table = groups.agg(
        models=("model", lambda names: ", ".join(dict.fromkeys(names))), studies=("study", "nunique"),
        least_ms=("mean_ms", "min"), most_ms=("mean_ms", "max"), waiting_share=("waiting_share", "min"),
    )  # fmt: skip
    table = table[table["studies"] > 1].reset_index()
    return table.assign(ratio=table["most_ms"] / table["least_ms"]).round(4)


def _steps(study: str, merged: Merged) -> pd.DataFrame:
    timings, runs = merged["timings"], merged["runs"]
    if timings.empty:
        return pd.DataFrame(columns=[*WORK, "model", "study", "mean_ms", "waiting_share"])
    steps = timings[(timings["phase"] == WHOLE_STEP) & timings["mean_ms"].notna()]
    steps = steps.merge(runs[["run", *SIZES]], on="run")
    waiting = steps["run"].astype("str").map(merged.waiting_share)
    return steps.assign(study=study, waiting_share=waiting)[[*WORK, "model", "study", "mean_ms", "waiting_share"]]


def claims_on_agreement(table: pd.DataFrame) -> list[Claim]:
    """How much studies differ if the GPU hardly waits, and otherwise; and which names belong to one model."""
    found = []
    waits = table["waiting_share"] >= HOST_BOUND_WAITING
    limit = percent(HOST_BOUND_WAITING)
    for waiting, rows in ((f"less than {limit}", table[~waits]), (f"{limit} or more", table[waits])):
        found.append(
            Claim(
                "If the GPU is idle for {waiting} of a step, times of the same run differ by {median} in the median of"
                " {runs} runs, and by at most {most}.",
                waiting=waiting, runs=len(rows), median=percent(rows["ratio"].median() - 1),
                most=percent(rows["ratio"].max() - 1),
            )
        )  # fmt: skip
    for names in dict.fromkeys(table.loc[table["models"].str.contains(","), "models"]):
        found.append(Claim("{names} are the same model.", names=names.replace(", ", " and ")))
    return found
