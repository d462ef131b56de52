"""What the document on predicted memory says: sentences and tables."""

import pandas as pd

from cs336_model.arithmetic.memory import NON_TENSOR_BYTES
from profile_grid.quantities import GIBIBYTE, interval, known, memory, significant, yes_or_no
from profile_grid.tables.cells import Part, rows_table, text_or_status
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import Claim, of_all, run_in_words, runs_in_words

NO_ANSWER = Claim("Not answered: only the memory of this project's model is predicted from its shape.", "missing")
MAX_COMPONENTS = 4  # of a run, in the table


def sentences(measured: Measured) -> list[Claim]:
    """How many runs fit by the shapes; whether measurements agree; the highest peak; errors of the predictions."""
    table = measured.tables["memory_predicted"]
    runs = table.drop_duplicates("run")
    if runs.empty:
        return [NO_ANSWER]
    return [*_fitting(runs), *_agreement(runs), _highest_peak(table), *_errors(runs)]


def _fitting(runs: pd.DataFrame) -> list[Claim]:
    """How many runs are predicted to fit into the GPU, and how many were measured to fit."""
    gpu_runs = runs[runs["fits"].notna()]
    if gpu_runs.empty:
        return []
    fitted = gpu_runs["fitted"].dropna()
    predicted_count, fitted_count = int(gpu_runs["fits"].sum()), int(fitted.sum())
    total = memory(gpu_runs["device_total_bytes"].max())
    if len(gpu_runs) == len(fitted) == 1 and predicted_count == fitted_count:
        fits = "fits" if predicted_count else "does not fit"
        text = "The only run {fits} into {total}, as predicted from the shapes."
        return [Claim(text, "predicted", fits=fits, total=total)]
    measured = f"; measured, {of_all(fitted_count, len(fitted), 'run')} {_verb(fitted_count)}" if len(fitted) else ""
    text = "Predicted from the shapes, with {room} added to the tensors, {fitting} {verb} into {total}{measured}."
    fitting, verb = of_all(predicted_count, len(gpu_runs), "run"), _verb(predicted_count)
    room = memory(NON_TENSOR_BYTES)
    return [Claim(text, "predicted", room=room, fitting=fitting, verb=verb, total=total, measured=measured)]


def _verb(run_count: int) -> str:
    """The verb after a number of runs: "1 of 8 runs fits", "none of 8 runs fit"."""
    return "fits" if run_count == 1 else "fit"


def _agreement(runs: pd.DataFrame) -> list[Claim]:
    """In how many of the measured runs the prediction is right, and in which it is wrong."""
    measured = runs[runs["fits"].notna() & runs["fitted"].notna()]
    wrong_runs = measured[measured["fits"].astype(bool) != measured["fitted"].astype(bool)]
    if measured.empty or (len(measured) == 1 and wrong_runs.empty):
        return []  # the lead says it
    other = f"; not in {runs_in_words(wrong_runs)}" if len(wrong_runs) else ""
    text = "Prediction and measurement agree in {same}{other}."
    return [Claim(text, "counted", same=of_all(len(measured) - len(wrong_runs), len(measured), "run"), other=other)]


def _highest_peak(table: pd.DataFrame) -> Claim:
    """The run with the highest predicted peak, and its largest component."""
    largest = table.loc[table["peak_bytes"].astype("float64").idxmax()]  # the first row of a run: its largest component
    text = "The highest predicted peak of tensors is {peak} ({run}); its largest component is {component} ({size})."
    peak, size = memory(largest["peak_bytes"]), memory(largest["bytes"])
    run, component = run_in_words(largest), largest["component"]
    return Claim(text, "predicted", run=run, peak=peak, component=component, size=size)


def _errors(runs: pd.DataFrame) -> list[Claim]:
    """How far the predicted peaks are from the measured ones, in percent with a sign."""
    measured = runs[runs["measured_peak_bytes"].notna()]
    if measured.empty:
        return []
    errors = measured["peak_bytes"].astype("float64") / measured["measured_peak_bytes"].astype("float64") - 1
    peaks = "Predicted peaks differ from the measured ones"
    if len(measured) == 1:
        peaks = "The predicted peak differs from the measured one"
    return [Claim("{peaks} by {errors}.", peaks=peaks, errors=interval(errors, _signed_percent))]


def _signed_percent(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-", "−")


def tables(measured: Measured) -> list[Part]:
    """One line per run: the predicted peak and whether it fits, what was measured, and the largest components."""
    table = measured.tables["memory_predicted"]

    def largest_components(run: dict) -> str:
        components = table[table["run"] == run["run"]].head(MAX_COMPONENTS)
        return "; ".join(f"{row.component} {_gib(row.bytes)}" for row in components.itertuples())

    columns = (
        ("predicted to fit", lambda run: yes_or_no(run["fits"])),
        ("predicted, GiB", lambda run: _gib(run["peak_bytes"])),
        ("measured, GiB", lambda run: text_or_status(_gib(run["measured_peak_bytes"]), run["status"])),
        ("largest components, GiB", largest_components),
    )
    lines = rows_table(table.drop_duplicates("run"), LEADING_KEYS, columns, left_aligned=len(columns))
    return [("What one GPU needs by the shapes, and what was measured", lines)]


def _gib(size: float) -> str:
    """A size in GiB with three digits, and with one decimal from 100 on, as in the sentences."""
    gib = size / GIBIBYTE if known(size) else None
    return f"{gib:.1f}" if known(gib) and gib >= 100 else significant(gib)
