"""What the document of (k) says: sentences and tables."""

import math

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, counted, interval, percent, ratio, significant, with_spread
from profile_grid.questions.k_warmup.table import TOLERANCE
from profile_grid.tables.cells import Part, rows_table, table_per_run
from profile_grid.tables.gains import LEADING_KEYS, whole_steps
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import WHOLE_STEP
from profile_grid.tables.pivoting import pivoted_texts
from profile_grid.tables.wording import Claim, leaders, listed, median_note, of_all, run_in_words, some_runs

NO_ANSWER = Claim("Not answered: no timed run kept the times of its warm-up steps.", "missing")
MAX_CAUSES = 2  # in a sentence
REPORTED_COUNTS = (0, 1, 2, 5)  # numbers of warm-up steps, besides all that were taken


def sentences(measured: Measured) -> list[Claim]:
    """(k) How long the first step takes and how many warm-up steps are enough; then why the first step takes longer."""
    summary = measured.tables["warmup_enough"]
    runs, reports = whole_steps(summary), whole_steps(measured.tables["warmup_reports"])
    captured_runs = measured.tables["warmup_first_step"].groupby("run", sort=False)
    causes = [_causes(run_rows, is_named=captured_runs.ngroups > 1) for _, run_rows in captured_runs]
    if runs.empty:
        return [NO_ANSWER, *causes]
    claims = [_lead(runs), *_unsteady_runs(runs), *_too_few_steps(runs), *_errors_after_fewer_steps(runs, reports)]
    return [*claims, *_longest_phase(summary), *causes]


def _steady(runs: pd.DataFrame) -> pd.DataFrame:
    """The steady runs: their mean is known to within TOLERANCE. For the others, no number of warm-up steps is known to
    be enough. `runs` here and below: the rows of `warmup_enough` on entire steps, one per run."""
    return runs[runs["tolerance"] <= TOLERANCE]


def _lead(runs: pd.DataFrame) -> Claim:
    """How many times as long the first step takes, and the number of warm-up steps that is enough, if it is known."""
    ratios, steady = runs["first_ratio"], _steady(runs)
    settled = steady[steady["enough"] < steady["taken"]]  # a later warm-up step shows that these were enough
    verdict = "steps vary too much to say how many warm-up steps are enough"
    if len(steady):
        verdict = "no number of warm-up steps is known to be enough"
    if len(settled):
        in_runs = of_all(len(settled), len(steady), "run" if len(steady) == len(runs) else "steady run")
        most_needed = int(settled["enough"].max())
        verdict = f"{counted(most_needed, 'warm-up step')} {'is' if most_needed == 1 else 'are'} enough in {in_runs}"
    text = "The first step takes {ratios} times as long as later ones{median}; {verdict}."
    median = median_note(ratios, significant)
    return Claim(text, "counted", ratios=interval(ratios, significant), median=median, verdict=verdict)


def _unsteady_runs(runs: pd.DataFrame) -> list[Claim]:
    """The runs whose mean is not known to within TOLERANCE."""
    unsteady = runs.drop(_steady(runs).index)
    if unsteady.empty:
        return []
    if len(runs) == 1:
        error = _tolerance_text(unsteady["tolerance"].iloc[0])
        return [Claim("The mean time of the measured steps is known only to within {error}.", error=error)]
    return [
        Claim(
            "In {runs}, steps vary too much to say: their mean time is known only to within {errors}.",
            "counted", runs=some_runs(unsteady, runs), errors=interval(unsteady["tolerance"], _tolerance_text),
        )
    ]  # fmt: skip


def _tolerance_text(share: float) -> str:
    """A tolerance in percent; it is infinite after a single step."""
    return percent(share) if math.isfinite(share) else "an unknown share"


def _too_few_steps(runs: pd.DataFrame) -> list[Claim]:
    """The steady runs whose last warm-up step still changed the mean: nothing shows whether all of them are enough."""
    steady = _steady(runs)
    unsettled = steady[steady["enough"] == steady["taken"]]
    text = "{taken} were too few for {runs}: the last of them still changed the mean by more than {tolerance}."
    numbers = {"taken": counted(int(runs["taken"].max()), "warm-up step"), "tolerance": percent(TOLERANCE)}
    return [Claim(text, "counted", runs=some_runs(unsettled, runs), **numbers)] if len(unsettled) else []


def _longest_phase(summary: pd.DataFrame) -> list[Claim]:
    """The phase that prolongs the first step most, of runs in which that is longer by more than the tolerance."""
    steps = whole_steps(summary)
    prolonged_runs = steps.loc[steps["first_ratio"] > 1 + steps["tolerance"], "run"]
    phases = summary[(summary["phase"] != WHOLE_STEP) & summary["run"].isin(prolonged_runs)]
    if phases["phase"].nunique() < 2:
        return []
    extra_ms = phases["first_ms"] - phases["measured_mean_ms"]
    longest = phases.loc[extra_ms.groupby(phases["run"]).idxmax(), "phase"]
    text = "Where the first step takes longer, the phase that adds most to it is {phases}."
    if len(steps) == 1:
        text = "Of the phases, {phases} adds most to the extra time of the first step."
    return [Claim(text, "counted", phases=leaders([escaped(phase) for phase in longest]))]


def _errors_after_fewer_steps(runs: pd.DataFrame, reports: pd.DataFrame) -> list[Claim]:
    """By how much the mean would differ after fewer warm-up steps, in the median of the runs."""
    taken, texts = reports["run"].map(runs.set_index("run")["taken"]), []
    for number in REPORTED_COUNTS:
        fewer = reports[(reports["warmup_steps"] == number) & (taken > number)]
        if len(fewer):
            texts.append(f"{percent((fewer['ratio'] - 1).abs().median())} with {number or 'none'}")
    text = "With fewer warm-up steps, the mean step would differ from that after all of them by {texts}{median}."
    return [Claim(text, texts=listed(texts), median=" (medians)" if len(runs) > 1 else "")] if texts else []


def _causes(run_rows: pd.DataFrame, *, is_named: bool) -> Claim:
    """The main causes why the captured first step of a run takes longer than later ones. `is_named`: the sentence names
    the run, because there are several."""
    extra_ms, place = run_rows["extra_ms"].sum(), f" ({run_in_words(run_rows.iloc[0])})" if is_named else ""
    if extra_ms <= 0:
        text = "Under the profiler{place}, the first step takes no longer than later ones."
        return Claim(text, place=place)
    causes = run_rows[run_rows["extra_ms"] > 0].nlargest(MAX_CAUSES, "extra_ms")
    # the name of a cause may end with an explanation in brackets
    texts = [f"{escaped(row.cause.partition(' (')[0])} ({significant(row.extra_ms)} ms)" for row in causes.itertuples()]
    text = "Under the profiler{place}, the first step takes {extra} ms more than later ones: mostly {texts}."
    return Claim(text, place=place, extra=significant(extra_ms), texts=listed(texts))


def tables(measured: Measured) -> list[Part]:
    """(k) Means after fewer warm-up steps, and how many are needed; where each captured first step takes longer."""
    reports, first_steps = measured.tables["warmup_reports"], measured.tables["warmup_first_step"]
    parts: list[Part] = ["No run has these times."]
    if len(reports):
        runs = whole_steps(measured.tables["warmup_enough"])
        parts = [
            ("Mean step without a profiler, by the number of warm-up steps", _reports_table(whole_steps(reports))),
            ("The first step compared with the measured steps, and how many warm-up steps are needed",
             rows_table(runs, LEADING_KEYS, WARMUP_COLUMNS)),
        ]  # fmt: skip
    text = "Time of the first step and of later steps by cause, from a capture that begins before the first step"
    parts += table_per_run(text, first_steps, _causes_table)
    return [*parts, *([DEFINITION_OF_CAUSES] if len(first_steps) else [])]


DEFINITION_OF_CAUSES = (
    "Each moment of a step has one cause, so the causes add up to the step; a moment with several causes counts for the"
    " one that is higher in the table. A kernel's code is loaded at its first launch. What cuBLAS sets up appears as"
    " memory, loading, and time between calls. The first and the later steps include the cost of the profiler."
)


def _reports_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per run: the mean step that would have been reported after fewer warm-up steps."""
    all_steps = int(rows["warmup_steps"].max())
    counts = [number for number in REPORTED_COUNTS if number < all_steps] + [all_steps]
    means = pivoted_texts(rows, ["run"], "warmup_steps", lambda row: with_spread(row["mean_ms"], row["std_ms"]))
    means = means.reindex(columns=counts, fill_value=ABSENT)
    columns = [(f"after {number}, ms", lambda row, number=number: means.loc[row["run"], number]) for number in counts]
    return rows_table(rows.drop_duplicates("run"), LEADING_KEYS, columns)


def _causes_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per cause: its time in the first step of a run, in later steps, and the difference."""
    lines = tuple(
        (
            escaped(row["cause"]), *(significant(row[name]) for name in ("first_ms", "later_ms", "extra_ms")),
            count(row["first_calls"]), count(row["later_calls"]),
        )
        for row in rows.to_dict("records")
    )  # fmt: skip
    headings = ("cause", "first step, ms", "later steps, ms", "difference, ms", "calls in the first", "calls later")
    return MarkdownTable(headings, lines, first_right=1)


def _needed_steps_cell(row: dict) -> str:
    """The number of warm-up steps that is enough; "?" if the run is not steady, "5 or more" if all 5 were too few."""
    if row["tolerance"] > TOLERANCE:
        return "?"
    return f"{row['taken']} or more" if row["enough"] == row["taken"] > 0 else count(row["enough"])


WARMUP_COLUMNS = (
    ("first step, ms", lambda row: significant(row["first_ms"])),
    ("measured, ms", lambda row: significant(row["measured_mean_ms"])),
    ("first ÷ measured", lambda row: ratio(row["first_ratio"])),
    ("tolerance", lambda row: _tolerance_text(row["tolerance"])),
    ("warm-up steps needed", _needed_steps_cell),
)
