"""What the document of (f) says: sentences and tables."""

import pandas as pd

from profile_grid.quantities import percent, ratio, scientific
from profile_grid.study.dimensions import PRECISION
from profile_grid.tables import cells, classes, names, pivoting
from profile_grid.tables.gains import (
    LEADING_KEYS,
    counts_by_value,
    largest_gain,
    parts_tables,
    phases_table,
    steps_table,
)
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import Claim, capital, listed, some_runs

NO_ANSWER = Claim("Not answered: no two timed runs differ only in precision, one of them in {base}.", "missing",
                base=PRECISION.default)  # fmt: skip


def sentences(measured: Measured) -> list[Claim]:
    """(f) The largest speed-up; counts of faster runs by precision; errors; parts that gain most and least."""
    times, errors = measured.tables["precision_times"], _accuracy(measured.tables["precision_accuracy"])
    if times.empty:
        return [NO_ANSWER, *errors]
    lead = largest_gain(times, PRECISION, base=PRECISION.words(PRECISION.default))
    return [lead, *counts_by_value(times, PRECISION), *errors, *_parts(measured, times)]


def _parts(measured: Measured, times: pd.DataFrame) -> list[Claim]:
    """The parts of the forward pass, without trivial ones, that gain most and least in the last (lowest) precision: in
    the median of inference runs, or of all runs if inference has no rows."""
    last_precision = pivoting.sorted_values(times, PRECISION.key)[-1]
    inference_parts = measured.inference("precision_parts")
    parts = measured.tables["precision_parts"] if inference_parts.empty else inference_parts
    parts = parts[(parts["precision"] == last_precision) & (parts["phase"] == names.FORWARD)]
    parts = parts[(parts["part"] != names.NO_RANGE) & (parts["base_share"] >= classes.NON_TRIVIAL_SHARE)]
    parts = parts.sort_values("base_share", ascending=False, kind="stable")  # the longest of equal gains is named
    gains = parts.groupby("part", sort=False)["speed_up"].median().round(3)
    if len(gains) < 2 or gains.max() == gains.min():
        return []
    text = "{in_lowest}, of the parts that take {least_share} or more of the forward pass in {base}, {most} gains most"
    text += " ({gain}) and {least} {gains} ({loss}), by {time}{medians}{table}."
    return [
        Claim(
            text, least_share=percent(classes.NON_TRIVIAL_SHARE), in_lowest=capital(PRECISION.words(last_precision)),
            base=PRECISION.default,
            most=gains.idxmax(), least=gains.idxmin(), gain=ratio(gains.max()), loss=ratio(gains.min()),
            gains="slows most" if gains.min() < 1 else "least", time=measured.words.time,
            medians=" (medians of runs)" if parts["run"].nunique() > 1 else "",
            # the document itself has a table of inference only
            table="; see the table `precision_parts`" if inference_parts.empty else "",
        )
    ]  # fmt: skip


def _accuracy(errors: pd.DataFrame) -> list[Claim]:
    """The largest error of the logits in each precision, and the runs whose error is too large for rounding."""
    compared = errors[errors["logits_error"].notna()]
    if compared.empty:
        return [Claim("No run was compared with one in fp{bits}, so the accuracy is not known.", "missing", bits=64)]
    texts = [
        f"{scientific(compared.loc[compared['precision'] == name, 'logits_error'].max())} in {name}"
        for name in pivoting.sorted_values(compared, PRECISION.key)
    ]
    unexplained = compared[~compared["within_precision"].astype("bool")]
    verdict = "all errors that were computed are small enough to be rounding"
    if len(unexplained):
        verdict = f"the error of {some_runs(unexplained, compared)} is too large for rounding"
    text = "The logits of the first step differ from fp{bits} by at most {texts}; {verdict}."
    return [Claim(text, "counted", bits=64, texts=listed(texts), verdict=verdict)]


def tables(measured: Measured) -> list[cells.Part]:
    """(f) Steps, phases and parts of the forward pass with their speed-ups; the errors of each timed run."""
    times, parts = measured.tables["precision_times"], measured.inference("precision_parts")
    each = f"How many times as fast each part of the forward pass is, by {measured.words.time}"
    return [
        ("A step without a profiler, in brackets how many times as fast as in fp32", steps_table(times, PRECISION)),
        ("How many times as fast each phase is, without a profiler", phases_table(times, PRECISION)),
        *cells.titled(each, parts_tables(parts[parts["phase"] == names.FORWARD])),
        ("Relative errors of the first step, compared with one in fp64, not compiled, with the same weights and tokens",
         cells.errors_table(measured.tables["precision_accuracy"], (*LEADING_KEYS, PRECISION.key))),
    ]  # fmt: skip
