"""What the document of (b) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import count, counted, interval, percent, with_spread
from profile_grid.study.dimensions import MODE, MODES, keys_without
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.cells import LED_BY, NOT_IN_GRID, headings_of, leading_cells, status_word
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, FORWARD
from profile_grid.tables.wording import (
    NO_FORWARD_PASS,
    TRAINING,
    leaders,
    no_kernels_sentence,
    of_all,
    places,
    stand_in,
    top_of,
    where,
)


def sentences(measured: Measured) -> list[str]:
    """(b) The top kernel of the forward pass, its invocations, and whether training has the same."""
    if not measured.has_kernels:
        return [no_kernels_sentence(measured)]
    top = top_of(measured.inference("top_kernels"), FORWARD)
    if top.empty:
        return [NO_FORWARD_PASS]
    found = [*stand_in(measured), _top_sentence(top, measured), _invocations_sentence(top, measured)]
    for mode in TRAINING:
        rows = top_of(measured.mode("top_kernels", mode), ALL_PHASES).dropna(subset="same_as_forward")
        if not rows.empty:
            found.append(_same_sentence(rows, TRAINING[mode], measured))
    return found


def _top_sentence(top: pd.DataFrame, measured: Measured) -> str:
    words = measured.words
    if top["kernel"].nunique() == 1:
        row = top.iloc[0]
        takes = f"{measured.label(row['kernel'])} takes the most {words.time} in the forward pass of"
        many = f"{interval(top['share'], percent)} of it, {counted(top['invocations'], 'invocation')} per pass"
        if len(top) > 1:
            return f"{takes} {of_all(len(top), len(top))}: {many}."
        time = with_spread(row["gpu_time_ms"], row["gpu_time_std_ms"], "ms")
        return f"{takes} {where(row)}: {time} per pass, {many}."
    shares = interval(top["share"], percent)
    return (
        f"In the forward pass the {words.kernel} with the most {words.time} is"
        f" {leaders(_kinds(top, words.kernel))}: {top['kernel'].nunique()} different ones, with {shares} of the"
        f" {words.time} and"
        f" {counted(top['invocations'], 'invocation')} per pass."
    )


def _invocations_sentence(top: pd.DataFrame, measured: Measured) -> str:
    """Whether every measured step has as many invocations of the top kernel."""
    captured = measured.runs.set_index("run")["steps_captured"]
    if (top["run"].map(captured) == 1).all():
        return "One step was captured, so whether every step has as many cannot be said."
    uneven = top[~top["same_in_every_step"].astype(bool)]
    if uneven.empty:
        return "Every measured step has the same number of them."
    return f"The number differs between the measured steps of {places(uneven)}: what stands there is the mean."


def _same_sentence(rows: pd.DataFrame, training: str, measured: Measured) -> str:
    """Whether the top kernel of the forward pass is also the top kernel of this mode."""
    other = rows[~rows["same_as_forward"].astype(bool)]
    if other.empty:
        return f"The same {measured.words.kernel} leads in {training}{_in_all(rows)}."
    labels = [measured.label(kernel) for kernel in other["kernel"]]
    leads = labels[0] if len(set(labels)) == 1 else leaders(labels)
    if len(other) == len(rows):
        return f"In {training} another {measured.words.kernel} leads{_in_all(rows)}: {leads}."
    same = of_all(len(rows) - len(other), len(rows))
    return f"The same {measured.words.kernel} leads in {training} in {same}; elsewhere it is {leads}."


def _in_all(rows: pd.DataFrame) -> str:
    return f" in {of_all(len(rows), len(rows))}" if len(rows) > 1 else ""


def _kinds(rows: pd.DataFrame, noun: str) -> list[str]:
    return [f"{'an' if name[0] in 'aeiou' else 'a'} {escaped(name)} {noun}" for name in rows["class"]]


def top_kernel_table(measured: Measured) -> MarkdownTable:
    """The top kernel of every mode side by side: label, time per pass, invocations per pass, share."""
    top = measured.tables["top_kernels"]
    top = top[top["rank"] == 1]
    modes = [mode for mode in MODES if mode in set(measured.runs["mode"])]
    cells = {
        row.run: _top_cell(row, measured)
        for mode in modes
        for row in top[(top["mode"] == mode) & (top["scope"] == _scope(mode))].itertuples()
    }
    shown, others = shown_dimensions(measured.runs, LED_BY, hidden=(MODE.key,)), keys_without(MODE.key)
    lines = []
    for _, runs in measured.runs.groupby(others, sort=False):
        by_mode = {row["mode"]: row for row in runs.to_dict("records")}
        first = next(iter(by_mode.values()))
        lines.append((*leading_cells(first, shown), *(_cell(cells, by_mode.get(mode)) for mode in modes)))
    return MarkdownTable((*headings_of(shown), *(MODES[mode] for mode in modes)), tuple(lines), first_right=99)


def _cell(cells: dict[str, str], run: dict | None) -> str:
    if run is None:
        return NOT_IN_GRID
    return cells.get(run["run"], status_word(run[CAPTURE.status_column]))


def _scope(mode: str) -> str:
    return FORWARD if mode == FORWARD else ALL_PHASES


def _top_cell(row, measured: Measured) -> str:
    time = with_spread(row.gpu_time_ms, row.gpu_time_std_ms, "ms")
    times = count(row.invocations) + ("" if row.same_in_every_step else " (mean)")
    return f"{measured.label(row.kernel)}: {time}, {times} ×, {percent(row.share)}"
