"""What the document on predicted memory says: sentences and tables."""

import pandas as pd

from cs336_model.arithmetic.memory import NON_TENSOR_BYTES
from profile_grid.quantities import ABSENT, GIBIBYTE, interval, known, memory, significant
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import CONTEXT_LENGTH, MODE, MODEL
from profile_grid.tables.cells import Part, lines_table, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import Claim, of_all, run_in_words, runs_in_words

NO_ANSWER = Claim("Not answered: only the memory of this project's model is predicted from its shape.", "missing")
ALWAYS = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
MOST_PARTS = 4


def sentences(measured: Measured) -> list[str]:
    """How many runs fit by the shapes; whether measurements agree; the largest run and its largest component."""
    table = measured.tables["memory_predicted"]
    runs = table.drop_duplicates("run")
    if runs.empty:
        return [NO_ANSWER]
    return [*_fitting(runs), *_agreement(runs), _largest(table), *_errors(runs)]


def _fitting(runs: pd.DataFrame) -> list[Claim]:
    with_gpu = runs[runs["fits"].notna()]
    if with_gpu.empty:
        return []
    fitting, fitted = int(with_gpu["fits"].sum()), with_gpu["fitted"].dropna()
    total = memory(with_gpu["device_total_bytes"].max())
    if len(with_gpu) == len(fitted) == 1 and fitting == int(fitted.sum()):
        fits = "fits" if fitting else "does not fit"
        text = "The only run {fits} into {total}, as predicted from the shapes."
        return [Claim(text, "predicted", fits=fits, total=total)]
    measured = (
        f"; measured, {of_all(int(fitted.sum()), len(fitted), 'run')} {_fit(int(fitted.sum()))}" if len(fitted) else ""
    )
    text = "Predicted from the shapes, with {room} added to the tensors, {fitting} {verb} into {total}{measured}."
    runs = of_all(fitting, len(with_gpu), "run")
    room = memory(NON_TENSOR_BYTES)
    return [Claim(text, "predicted", room=room, fitting=runs, verb=_fit(fitting), total=total, measured=measured)]


def _fit(number: int) -> str:
    """The verb after a number of runs; "none of 8 runs fit", too."""
    return "fits" if number == 1 else "fit"


def _agreement(runs: pd.DataFrame) -> list[Claim]:
    both = runs[runs["fits"].notna() & runs["fitted"].notna()]
    wrong = both[both["fits"].astype(bool) != both["fitted"].astype(bool)]
    if both.empty or len(both) == 1 > len(wrong):
        return []  # the lead says it
    other = f"; not in {runs_in_words(wrong)}" if len(wrong) else ""
    text = "Prediction and measurement agree in {same}{other}."
    return [Claim(text, "counted", same=of_all(len(both) - len(wrong), len(both), "run"), other=other)]


def _largest(table: pd.DataFrame) -> Claim:
    rows = table[table["run"] == table.loc[table["peak_bytes"].astype("float64").idxmax(), "run"]]
    first = rows.iloc[0]
    text = "The highest predicted peak of tensors is {peak} ({run}); its largest component is {component} ({size})."
    size = memory(first["bytes"])
    return Claim(
        text, "predicted", run=run_in_words(first), peak=memory(first["peak_bytes"]),
        component=first["component"], size=size,
    )  # fmt: skip


def _errors(runs: pd.DataFrame) -> list[Claim]:
    """How far the predicted peaks are from the bytes that were allocated."""
    both = runs[runs["measured_peak_bytes"].notna()]
    if both.empty:
        return []
    errors = both["peak_bytes"].astype("float64") / both["measured_peak_bytes"].astype("float64") - 1
    peaks = "The predicted peak differs from the measured one"
    if len(both) > 1:
        peaks = "Predicted peaks differ from the measured ones"
    text = "{peaks} by {errors}."
    return [Claim(text, peaks=peaks, errors=interval(errors, _signed_percent))]


def _signed_percent(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-", "−")


def tables(measured: Measured) -> list[Part]:
    """One line per run: the predicted peak and whether it fits, what was measured, and the largest components."""
    table = measured.tables["memory_predicted"]
    parts = dict(iter(table.groupby("run", sort=False)))

    def cells(row: dict) -> list[str]:
        fits = ABSENT if not known(row["fits"]) else "yes" if row["fits"] else "no"
        texts = [
            f"{part['component']} {_gib(part['bytes'])}"
            for part in parts[row["run"]].head(MOST_PARTS).to_dict("records")
        ]
        return [fits, _gib(row["peak_bytes"]), _measured(row), "; ".join(texts)]

    headings = ("predicted to fit", "predicted, GiB", "measured, GiB", "largest components, GiB")
    lines = lines_table(table.drop_duplicates("run"), ALWAYS, headings, cells, words=len(headings))
    return [("What one GPU needs by the shapes, and what was measured", lines)]


def _measured(row: dict) -> str:
    return _gib(row["measured_peak_bytes"]) if row["status"] == COMPLETE else status_word(row["status"])


def _gib(size: float) -> str:
    """A size in GiB: three digits, and never less than one decimal, as in the sentences."""
    gib = size / GIBIBYTE if known(size) else None
    return f"{gib:.1f}" if known(gib) and gib >= 100 else significant(gib)
