"""What the document of (b) says: sentences and tables."""

from collections import Counter

import pandas as pd

from cs336_model.ranges import TRAIN_STEP
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import count, counted, interval, percent, with_spread
from profile_grid.study.dimensions import MODE, MODES, keys_without
from profile_grid.study.stages import CAPTURE
from profile_grid.tables.cells import LEADING_KEYS, NOT_IN_GRID, Part, headings_of, leading_cells, status_word
from profile_grid.tables.classes import family
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, FORWARD
from profile_grid.tables.pivoting import shown_dimensions
from profile_grid.tables.wording import (
    NO_FORWARD_PASS,
    TRAINING,
    Claim,
    configs_in_words,
    first_ranked,
    mode_note,
    no_kernels_sentence,
    of_all,
)

STEPS = {TRAIN_STEP: "training"}  # by mode, in the first sentence, which is short


def sentences(measured: Measured) -> list[str]:
    """(b) The top kernel of the forward pass, its invocations, and whether it is the top kernel of training."""
    if not measured.has_kernels:
        return [no_kernels_sentence(measured)]
    top = first_ranked(measured.inference("top_kernels"), FORWARD)
    if top.empty:
        return [NO_FORWARD_PASS]
    every, scopes = measured.tables["top_kernels"], []
    for mode in TRAINING:
        rows = first_ranked(every[every["mode"] == mode], ALL_PHASES).dropna(subset="same_as_forward")
        if len(rows):
            scopes.append((mode, rows))
    lead = _leads(top, scopes, measured)
    others = [claim for scope in scopes for claim in _others(*scope, measured, scope is scopes[-1])]
    return [lead, *mode_note(measured), _invocations(top, measured), *others]


def _leads(top: pd.DataFrame, scopes: list[tuple[str, pd.DataFrame]], measured: Measured) -> Claim:
    """The top kernel of the forward pass, its share, and in how many runs it is the top kernel of the fullest mode."""
    is_same = top["kernel"].nunique() == 1
    kinds = [measured.label(top["kernel"].iloc[0])] * len(top) if is_same else top["class"].map(family).map(escaped)
    kind, leads = Counter(kinds).most_common(1)[0]
    training = ""
    if scopes:
        mode, rows = scopes[-1]
        same = int(rows["same_as_forward"].astype(bool).sum())
        leader = f"the same {measured.words.kernel}" if same else f"another {measured.words.kernel}"
        training = f"; {leader} leads {STEPS.get(mode, MODES[mode])}"
        training += f" in {of_all(same or len(rows), len(rows), 'run')}" if len(rows) > 1 else ""
    median = f" (median {percent(top['share'].median())})" if len(top) > 2 else ""
    runs = of_all(leads, len(top), "run")
    return Claim(
        "The top {kernel} takes {share} of the forward pass{median}: {kind}{runs}{training}.",
        "counted", kind=kind, runs=f" in {runs}" if len(top) > 1 else "", kernel=measured.words.kernel,
        share=interval(top["share"], percent), median=median, training=training,
    )  # fmt: skip


def _invocations(top: pd.DataFrame, measured: Measured) -> Claim:
    """Invocations of the top kernel in a pass, and whether they are the same in every measured step."""
    uneven = top[~top["same_in_every_step"].astype(bool)]
    captured = measured.runs.set_index("run")["steps_captured"]
    every = "the same in every captured step"
    if (top["run"].map(captured) == 1).all():
        every = "of the one captured step"
    elif len(uneven):
        every = f"the mean of captured steps that differ in {configs_in_words(uneven)}"
    text = "The top {kernel} of the forward pass is launched {times}, {every}."
    times = counted(top["invocations"], "time")
    return Claim(text, "counted", kernel=measured.words.kernel, times=times, every=every)


def _others(mode: str, rows: pd.DataFrame, measured: Measured, in_lead: bool) -> list[Claim]:
    """In how many runs of a training mode another kernel is the top kernel, and which, if it is the same in all; what
    the lead says is not said again."""
    differing = rows[~rows["same_as_forward"].astype(bool)]
    if differing.empty:
        same = Claim("In {mode}, the same {kernel} leads.", mode=TRAINING[mode], kernel=measured.words.kernel)
        return [] if in_lead else [same]
    labels = {measured.label(kernel) for kernel in differing["kernel"]}
    which = f": {labels.pop()}" if len(labels) == 1 else ""
    if in_lead and not which:
        return []
    if in_lead and len(differing) == len(rows):
        which = which.removeprefix(": ")
        text = "The top {kernel} of {mode} is {which}."
        return [Claim(text, "counted", kernel=measured.words.kernel, mode=TRAINING[mode], which=which)]
    runs = of_all(len(differing), len(rows), "run")
    return [Claim("In {mode}, another {kernel} leads in {runs}{which}.", "counted", runs=runs, mode=TRAINING[mode],
                  kernel=measured.words.kernel, which=which)]  # fmt: skip


def tables(measured: Measured) -> list[Part]:
    """(b) The top kernel of every mode side by side."""
    words = measured.words
    figures = f"{words.time} and invocations in a single pass, share of the pass's {words.time}"
    return [(f"Top {words.kernel}: {figures}", _top_kernel_table(measured))] if measured.has_kernels else []


def _top_kernel_table(measured: Measured) -> MarkdownTable:
    """A line per configuration: label, time per pass, invocations per pass, share."""
    top = measured.tables["top_kernels"]
    top = top[top["rank"] == 1]
    modes = [mode for mode in MODES if mode in set(measured.runs["mode"])]
    cells = {
        row.run: _top_cell(row, measured)
        for mode in modes
        for row in top[(top["mode"] == mode) & (top["scope"] == _scope(mode))].itertuples()
    }
    phase = []  # the forward phase of the mode that stands in for the forward pass
    if measured.inference_mode != FORWARD:
        phase = [f"{FORWARD} phase"]
        rows = top[(top["mode"] == measured.inference_mode) & (top["scope"] == FORWARD)]
        in_phase = {row.run: _top_cell(row, measured) for row in rows.itertuples()}
    dimensions, keys = shown_dimensions(measured.runs, LEADING_KEYS, hidden=(MODE.key,)), keys_without(MODE.key)
    lines = []
    for _, runs in measured.runs.groupby(keys, sort=False):
        by_mode = {row["mode"]: row for row in runs.to_dict("records")}
        first = next(iter(by_mode.values()))
        stand_in = [_cell(in_phase, by_mode.get(measured.inference_mode)) for _ in phase]
        of_modes = (_cell(cells, by_mode.get(mode)) for mode in modes)
        lines.append((*leading_cells(first, dimensions), *stand_in, *of_modes))
    headings = (*headings_of(dimensions), *phase, *(MODES[mode] for mode in modes))
    return MarkdownTable(headings, tuple(lines), first_right=99)


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
