"""What the document of (k) says: sentences and tables."""

import math

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import ABSENT, count, counted, interval, percent, ratio, significant, with_spread
from profile_grid.questions.k_warmup.table import TOLERANCE
from profile_grid.tables.cells import Part, rows_table
from profile_grid.tables.gains import LEADING_KEYS, whole_steps
from profile_grid.tables.measured import Measured
from profile_grid.tables.pivoting import pivoted_texts
from profile_grid.tables.wording import Claim, median_note, of_all

NO_ANSWER = Claim("Not answered: no timed run kept the times of its warm-up steps.", "missing")
REPORTED_COUNTS = (0, 1, 2, 5)  # numbers of warm-up steps, besides all that were taken


def sentences(measured: Measured) -> list[Claim]:
    """(k) How many warm-up steps are enough, and how much longer the first step takes."""
    runs = whole_steps(measured.tables["warmup_enough"])
    if runs.empty:
        return [NO_ANSWER]
    ratios = runs["first_ratio"]
    text = "The first step takes {ratios} times as long as later ones{median}."
    median = median_note(ratios, significant)
    return [_enough(runs), Claim(text, "counted", ratios=interval(ratios, significant), median=median)]


def _enough(runs: pd.DataFrame) -> Claim:
    """The number of warm-up steps that is enough, if it is known. `runs`: the rows of `warmup_enough` on entire
    steps, one per run. In steady runs, the mean is known to within TOLERANCE; in the others, no number is known."""
    steady = runs[runs["tolerance"] <= TOLERANCE]
    settled = steady[steady["enough"] < steady["taken"]]  # a later warm-up step shows that these were enough
    if steady.empty:
        text = (
            "Steps vary too much to say how many warm-up steps are enough: their mean is known only to within {error}."
        )
        return Claim(text, "counted", error=interval(runs["tolerance"], _tolerance_text))
    if settled.empty:
        taken = interval(steady["taken"], count)
        return Claim("More than the {taken} warm-up steps taken may be needed.", "counted", taken=taken)
    most_needed = int(settled["enough"].max())
    is_enough = f"{counted(most_needed, 'warm-up step')} {'is' if most_needed == 1 else 'are'}"
    in_runs = of_all(len(settled), len(steady), "run" if len(steady) == len(runs) else "steady run")
    return Claim("{number} enough in {in_runs}.", "counted", number=is_enough, in_runs=in_runs)


def _tolerance_text(share: float) -> str:
    """A tolerance in percent; it is infinite after a single step."""
    return percent(share) if math.isfinite(share) else "an unknown share"


def tables(measured: Measured) -> list[Part]:
    """(k) Means after fewer warm-up steps, and how many are needed."""
    reports = whole_steps(measured.tables["warmup_reports"])
    if reports.empty:
        return ["No run has these times."]
    runs = whole_steps(measured.tables["warmup_enough"])
    return [
        ("Mean step without a profiler, by the number of warm-up steps", _reports_table(reports)),
        ("The first step compared with the measured steps, and how many warm-up steps are needed",
         rows_table(runs, LEADING_KEYS, WARMUP_COLUMNS)),
    ]  # fmt: skip


def _reports_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per run: the mean step that would have been reported after fewer warm-up steps."""
    all_steps = int(rows["warmup_steps"].max())
    counts = [number for number in REPORTED_COUNTS if number < all_steps] + [all_steps]
    means = pivoted_texts(rows, ["run"], "warmup_steps", lambda row: with_spread(row["mean_ms"], row["std_ms"]))
    means = means.reindex(columns=counts, fill_value=ABSENT)
    columns = [(f"after {number}, ms", lambda row, number=number: means.loc[row["run"], number]) for number in counts]
    return rows_table(rows.drop_duplicates("run"), LEADING_KEYS, columns)


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
