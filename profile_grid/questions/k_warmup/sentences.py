"""The sentences of (k): how slow the first step is, how many warm-up steps are enough, and what fewer would report."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import interval, percent, ratio, significant
from profile_grid.questions.k_warmup.table import of_whole_steps
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.wording import leaders, listed, of_all, places, run_in_words

NOT_KEPT = "Not answered: no timed run kept the times of its warm-up steps."
MOST_CAUSES = 3
SHOWN_COUNTS = (0, 1, 2, 5)


def sentences(measured: Measured) -> list[str]:
    """(k) The answer, then the first step, and the error of fewer warm-up steps."""
    enough, reports = (of_whole_steps(measured.tables[name]) for name in ("warmup_enough", "warmup_reports"))
    causes = [_causes(own) for _, own in measured.tables["warmup_first_step"].groupby("run", sort=False)]
    if enough.empty:
        return [NOT_KEPT, *causes]
    found = [_enough(enough), _first(enough), *_phase(measured.tables["warmup_enough"]), *_fewer(enough, reports)]
    return [*found, *causes]


def _enough(enough: pd.DataFrame) -> str:
    """The largest number that is enough, and the runs of which it is not known: where no fewer than all that were taken
    would do, nothing tells whether they do."""
    is_open, taken = enough["enough"] == enough["taken"], int(enough["taken"].max())
    known, unknown = enough[~is_open], enough[is_open]
    text = f"{_steps(taken)} {'was' if taken == 1 else 'were'} taken."
    if len(known):
        most = int(known["enough"].max())
        needing = known[known["enough"] == most]
        runs = of_all(len(known), len(enough), "run") if len(unknown) else "every run"
        by = f" (needed by {places(needing)})" if most and len(needing) < len(known) else ""
        within = f"to within {interval(known['tolerance'], percent)}{by}"
        text = f"{_steps(most)} {'is' if most == 1 else 'are'} enough in {runs}, {within}; {text}"
    if len(unknown):
        text += (
            f" How many are enough is not known for {places(unknown)}: with the last of them the mean still changed by"
            f" more than {interval(unknown['tolerance'], percent)}; take more there."
        )
    return text


def _first(enough: pd.DataFrame) -> str:
    """How slow the first step is."""
    return f"Beside the mean of the measured steps, the first takes {interval(enough['first_ratio'], ratio)}."


def _phase(enough: pd.DataFrame) -> list[str]:
    """The phase whose first time is furthest from its later ones."""
    phases = enough[enough["phase"] != WHOLE_STEP]
    if phases["phase"].nunique() < 2:
        return []
    extra = phases.assign(extra=phases["first_ms"] - phases["measured_mean_ms"])
    most = extra.loc[extra.groupby("run")["extra"].idxmax()]
    return [f"Most of what it takes longer is in {leaders([f'**{escaped(phase)}**' for phase in most['phase']])}."]


def _fewer(enough: pd.DataFrame, reports: pd.DataFrame) -> list[str]:
    """How far off the mean would be after fewer warm-up steps."""
    counts = [count for count in SHOWN_COUNTS if count < int(enough["taken"].max())]
    taken, told = reports["run"].map(enough.set_index("run")["taken"]), []
    for count in counts:
        own = reports[(reports["warmup_steps"] == count) & (taken > count)]
        told.append(f"{interval((own['ratio'] - 1).abs(), percent)} after {count}")
    return [f"The mean would have been off by {listed(told)}."] if told else []


def _causes(own: pd.DataFrame) -> str:
    """Why the first step of a run takes longer than later ones: the causes with most of it."""
    first, extra = own["first_ms"].sum(), own["extra_ms"].sum()
    place = run_in_words(own.iloc[0])
    if extra <= 0:
        return f"Captured from before it, the first step takes no longer than later ones in {place}."
    most = own[own["extra_ms"] > 0].nlargest(MOST_CAUSES, "extra_ms")
    told = [f"**{escaped(row.cause)}** ({significant(row.extra_ms)} ms)" for row in most.itertuples()]
    return (
        f"Captured from before it, the first step takes {significant(first)} ms in {place}, {significant(extra)} ms"
        f" more than later ones; what grows most is {listed(told)}."
    )


def _steps(count: int) -> str:
    return f"{count} warm-up step{'' if count == 1 else 's'}"
