"""What the document of (f) says: sentences and tables."""

import pandas as pd

from profile_grid.quantities import interval, ratio
from profile_grid.study.dimensions import PRECISION
from profile_grid.tables import cells, classes, names, pivoting
from profile_grid.tables.gains import LEADING_KEYS, by_value, largest_gain, parts_tables, phases_table, steps_table
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import Claim, listed, some_runs

NO_PAIR = Claim("Not answered: no two timed runs differ only in precision, one of them in {base}.", "missing",
                base=PRECISION.default)  # fmt: skip


def sentences(measured: Measured) -> list[str]:
    """(f) The largest speed-up; then by precision, by part, and the errors."""
    times, errors = measured.tables["precision_times"], _accuracy(measured.tables["precision_accuracy"])
    if times.empty:
        return [NO_PAIR, *errors]
    lead = largest_gain(times, PRECISION, PRECISION.words(PRECISION.default))
    return [lead, *by_value(times, PRECISION), *errors, *_parts(measured, times)]


def _parts(measured: Measured, times: pd.DataFrame) -> list[Claim]:
    """The parts of the forward pass that gain most and least in the lowest precision, without trivial parts."""
    lowest, parts = pivoting.sorted_values(times, PRECISION.key)[-1], measured.tables["precision_parts"]
    forward = parts[
        (parts["precision"] == lowest) & (parts["phase"] == names.FORWARD) & (parts["part"] != names.NO_RANGE)
    ]
    forward = forward[forward["base_share"] >= classes.NON_TRIVIAL_SHARE]
    ranges = {part: (rows.min(), rows.max()) for part, rows in forward.groupby("part", sort=False)["speed_up"]}
    if len(ranges) < 2:
        return []
    most, least = max(ranges, key=lambda part: ranges[part][0]), min(ranges, key=lambda part: ranges[part][1])
    if ranges[most][0] <= ranges[least][1]:
        return []
    return [
        Claim(
            "Of the parts of the forward pass {in_lowest}, {most} gains most ({gain}) and {least} {gains} ({loss}), by"
            " {time}{table}.",
            time=measured.words.time, in_lowest=PRECISION.words(lowest), most=most, least=least,
            gains="gets slower" if ranges[least][1] < 1 else "least",
            table="" if (forward["mode"] == measured.inference_mode).any() else " (the table `precision_parts`)",
            gain=interval(ranges[most], ratio), loss=interval(ranges[least], ratio),
        )
    ]  # fmt: skip


def _accuracy(rows: pd.DataFrame) -> list[Claim]:
    """The largest error of the logits in each precision, and the runs whose error rounding does not explain."""
    compared = rows[rows["logits_error"].notna()]
    if compared.empty:
        return [Claim("No run was compared with one in fp{bits}, so the accuracy is not known.", "missing", bits=64)]
    texts = [
        f"{_error(compared.loc[compared['precision'] == name, 'logits_error'].max())} in {name}"
        for name in pivoting.sorted_values(compared, PRECISION.key)
    ]
    large = compared[~compared["within_precision"].astype("bool")]
    verdict = "rounding explains all errors"
    if len(large):
        verdict = f"rounding does not explain that of {some_runs(large, compared)}"
    text = "The logits of the first step differ from fp{bits} by at most {texts}; {verdict}."
    return [Claim(text, "counted", bits=64, texts=listed(texts), verdict=verdict)]


def _error(value: float) -> str:
    return f"{value:.1e}"


def tables(measured: Measured) -> list[cells.Part]:
    """(f) Steps, phases and parts of the forward pass with their speed-ups; the errors of each timed run."""
    times, parts = measured.tables["precision_times"], measured.mode("precision_parts", measured.inference_mode)
    each = f"How many times as fast each part of the forward pass is, by {measured.words.time}"
    return [
        ("A step without a profiler, in brackets how many times as fast as in fp32", steps_table(times, PRECISION)),
        ("How many times as fast each phase is, without a profiler", phases_table(times, PRECISION)),
        *(
            (each + (f", {title}" if title else ""), table)
            for title, table in parts_tables(parts[parts["phase"] == names.FORWARD])
        ),
        ("Relative errors of the first step, compared with one in fp64, not compiled, with the same weights and tokens",
         cells.errors_table(measured.tables["precision_accuracy"], (*LEADING_KEYS, PRECISION.key))),
    ]  # fmt: skip
