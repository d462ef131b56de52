"""What the document of (f) says: sentences and tables."""

import pandas as pd

from kernel_tables.markdown import MarkdownTable
from profile_grid.quantities import interval, ratio, significant
from profile_grid.study.dimensions import PRECISION
from profile_grid.tables import ratio_tables
from profile_grid.tables.accuracy import errors_table
from profile_grid.tables.claims import Claim
from profile_grid.tables.classes import NON_TRIVIAL_SHARE
from profile_grid.tables.gains import by_value, largest_gain
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD, NO_RANGE
from profile_grid.tables.pivoting import sorted_values
from profile_grid.tables.wording import listed, places

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
    lowest, parts = sorted_values(times, PRECISION.key)[-1], measured.tables["precision_parts"]
    forward = parts[(parts["precision"] == lowest) & (parts["phase"] == FORWARD) & (parts["part"] != NO_RANGE)]
    forward = forward[forward["base_share"] >= NON_TRIVIAL_SHARE]
    ranges = {part: (rows.min(), rows.max()) for part, rows in forward.groupby("part", sort=False)["speed_up"]}
    if len(ranges) < 2:
        return []
    most, least = max(ranges, key=lambda part: ranges[part][0]), min(ranges, key=lambda part: ranges[part][1])
    if ranges[most][0] <= ranges[least][1]:
        return []
    return [
        Claim(
            "By {time} of the forward pass {in_lowest}, the largest speed-up is that of {most} ({gain}), the smallest"
            " that of {least} ({loss}).",
            time=measured.words.time, in_lowest=PRECISION.words(lowest), most=most, least=least,
            gain=interval(ranges[most], ratio), loss=interval(ranges[least], ratio),
        )
    ]  # fmt: skip


def _accuracy(rows: pd.DataFrame) -> list[Claim]:
    """The error of the logits in each precision, and the runs whose error rounding does not explain."""
    compared = rows[rows["logits_error"].notna()]
    if compared.empty:
        return [Claim("No run was compared with one in fp{bits}, so the accuracy is not known.", "missing", bits=64)]
    texts = [
        f"{interval(compared[compared['precision'] == name]['logits_error'], _error)} in {name}"
        for name in sorted_values(compared, PRECISION.key)
    ]
    large = compared[~compared["within_precision"].astype("bool")]
    verdict = "rounding explains all of it" if large.empty else f"rounding does not explain that of {places(large)}"
    text = "The logits of the first step differ from fp{bits} by {texts}; {verdict}."
    return [Claim(text, "counted", bits=64, texts=listed(texts), verdict=verdict)]


def _error(value: float) -> str:
    return f"{significant(100 * value, 2)} %" if value >= 1e-4 else f"{value:.1e}"


def steps_table(measured: Measured) -> MarkdownTable:
    """(f) One line per configuration: its step in fp32, then its time and speed-up in each other precision."""
    return ratio_tables.steps_table(measured.tables["precision_times"], PRECISION)


def phases_table(measured: Measured) -> MarkdownTable:
    """(f) One line per configuration with a backward pass and precision: the speed-up of each phase."""
    return ratio_tables.phases_table(measured.tables["precision_times"], PRECISION)


def parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(f) Speed-up of the GPU time of each part of the forward pass, with the title of each table."""
    rows = measured.mode("precision_parts", measured.inference_mode)
    return ratio_tables.parts_tables(rows[rows["phase"] == FORWARD])


def accuracy_table(measured: Measured) -> MarkdownTable | None:
    """(f) One line per timed run: its relative errors, the error that its precision explains, and the verdict; None
    without errors."""
    return errors_table(measured.tables["precision_accuracy"], (*ratio_tables.LEADING_KEYS, PRECISION.key))
