"""How much the studies of the example differ where they measured the same run: the floor for claims between them."""

import pandas as pd

from docs.examples import EXAMPLES, H200, SIZES, WORK
from profile_grid.quantities import percent
from profile_grid.study.dimensions import CONTEXT_LENGTH
from profile_grid.tables.claims import Claim
from profile_grid.tables.evidence import WAITING
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.per_pass import Merged

FILE = H200 / "agreement.csv"


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


def claims(table: pd.DataFrame) -> list[Claim]:
    """How much studies differ if the GPU hardly waits, and otherwise; and which names belong to one model."""
    found = []
    waits = table["waiting_share"] >= WAITING
    for which, rows in (("less", table[~waits]), ("more", table[waits])):
        found.append(
            Claim(
                "Where the GPU waits for {which} than {limit} of a step, the {runs} runs that several studies timed"
                " differ by {median} in the median and by {most} at most ({place}).",
                which=which, limit=percent(WAITING), runs=len(rows), median=percent(rows["ratio"].median() - 1),
                most=percent(rows["ratio"].max() - 1), place=_place(rows.loc[rows["ratio"].idxmax()]),
            )
        )  # fmt: skip
    for names in dict.fromkeys(table.loc[table["models"].str.contains(","), "models"]):
        found.append(Claim("One model has two names: {names}.", names=names.replace(", ", " and ")))
    return found


def _place(row: pd.Series) -> str:
    return f"{row['models']} {CONTEXT_LENGTH.words(row['context_length'])} in {row['precision']}, {row['mode']}"
