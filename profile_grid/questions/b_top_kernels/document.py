"""What the document of (b) says: sentences and tables."""

from collections import Counter

import pandas as pd

from cs336_model.ranges import TRAIN_STEP
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import count, counted, interval, percent, with_spread
from profile_grid.study.dimensions import MODE, MODES, keys_without
from profile_grid.study.stages import CAPTURE
from profile_grid.tables import wording
from profile_grid.tables.cells import LEADING_KEYS, NOT_IN_GRID, Part, headings_of, leading_cells, status_word
from profile_grid.tables.classes import family
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, FORWARD
from profile_grid.tables.pivoting import shown_dimensions
from profile_grid.tables.wording import TRAINING, Claim, median_note, of_all

SHORT_NAMES_OF_MODES = {TRAIN_STEP: "training"}  # in the first sentence, which is short


def sentences(measured: Measured) -> list[Claim]:
    """(b) The top kernel of the forward pass, its invocations, and whether it is the top kernel of training."""
    if not measured.has_kernels:
        return [wording.no_kernels_sentence(measured)]
    top = wording.first_ranked(measured.inference("top_kernels"), FORWARD)
    if top.empty:
        return [wording.NO_FORWARD_PASS]
    training_tops = []  # (mode, the top kernel of the step of each run), the fullest mode last
    for mode in TRAINING:
        rows = wording.first_ranked(measured.mode("top_kernels", mode), ALL_PHASES).dropna(subset="same_as_forward")
        if len(rows):
            training_tops.append((mode, rows))
    last_mode = training_tops[-1][0] if training_tops else None
    others = [claim for mode, rows in training_tops for claim in _others(mode, rows, measured, mode == last_mode)]
    return [_lead(top, training_tops, measured), *wording.mode_note(measured), _invocations(top, measured), *others]


def _lead(top: pd.DataFrame, training_tops: list[tuple[str, pd.DataFrame]], measured: Measured) -> Claim:
    """The top kernel of the forward pass, or its commonest class if runs differ, and its share; in how many runs of the
    fullest mode the same kernel leads, or that another one leads in all."""
    is_same = top["kernel"].nunique() == 1
    kinds = [measured.label(top["kernel"].iloc[0])] * len(top) if is_same else top["class"].map(family).map(escaped)
    kind, kind_runs = Counter(kinds).most_common(1)[0]
    training = ""
    if training_tops:
        mode, rows = training_tops[-1]
        same_runs = int(rows["same_as_forward"].astype(bool).sum())
        leader = f"the same {measured.words.kernel}" if same_runs else f"another {measured.words.kernel}"
        training = f"; {leader} leads {SHORT_NAMES_OF_MODES.get(mode, MODES[mode])}"
        training += f" in {of_all(same_runs or len(rows), len(rows), 'run')}" if len(rows) > 1 else ""
    runs = of_all(kind_runs, len(top), "run")
    return Claim(
        "The top {kernel} takes {share} of the forward pass{median}: {kind}{runs}{training}.",
        "counted", kind=kind, runs=f" in {runs}" if len(top) > 1 else "", kernel=measured.words.kernel,
        share=interval(top["share"], percent), median=median_note(top["share"], percent), training=training,
    )  # fmt: skip


def _invocations(top: pd.DataFrame, measured: Measured) -> Claim:
    """Invocations of the top kernel in a pass, and whether they are the same in every captured step."""
    uneven_rows = top[~top["same_in_every_step"].astype(bool)]
    captured = measured.runs.set_index("run")["steps_captured"]
    over_steps = "the same in every captured step"
    if (top["run"].map(captured) == 1).all():
        over_steps = "of the one captured step"
    elif len(uneven_rows):
        over_steps = f"the mean of captured steps that differ in {wording.configs_in_words(uneven_rows)}"
    text = "The top {kernel} of the forward pass is launched {times}, {every}."
    times = counted(top["invocations"], "time")
    return Claim(text, "counted", kernel=measured.words.kernel, times=times, every=over_steps)


def _others(mode: str, rows: pd.DataFrame, measured: Measured, in_lead: bool) -> list[Claim]:
    """In how many runs of a training mode another kernel leads, and which, if it is the same in all of these; or that
    none does. With `in_lead`, only what the lead does not say."""
    differing = rows[~rows["same_as_forward"].astype(bool)]
    if differing.empty:
        same = Claim("In {mode}, the same {kernel} leads.", mode=TRAINING[mode], kernel=measured.words.kernel)
        return [] if in_lead else [same]
    labels = {measured.label(kernel) for kernel in differing["kernel"]}
    label_text = f": {labels.pop()}" if len(labels) == 1 else ""
    if in_lead and not label_text:
        return []
    if in_lead and len(differing) == len(rows):
        label_text = label_text.removeprefix(": ")
        text = "The top {kernel} of {mode} is {which}."
        return [Claim(text, "counted", kernel=measured.words.kernel, mode=TRAINING[mode], which=label_text)]
    runs = of_all(len(differing), len(rows), "run")
    return [Claim("In {mode}, another {kernel} leads in {runs}{which}.", "counted", runs=runs, mode=TRAINING[mode],
                  kernel=measured.words.kernel, which=label_text)]  # fmt: skip


def tables(measured: Measured) -> list[Part]:
    """(b) The top kernel of every mode side by side; no table without kernels."""
    words = measured.words
    figures = f"{words.time} and invocations in a single pass, share of the pass's {words.time}"
    return [(f"Top {words.kernel}: {figures}", _top_kernel_table(measured))] if measured.has_kernels else []


def _top_kernel_table(measured: Measured) -> MarkdownTable:
    """A line per configuration, a column per mode: the top kernel, its time and invocations per pass, and its share."""
    modes = [mode for mode in MODES if mode in set(measured.runs["mode"])]
    columns = [(MODES[mode], mode, FORWARD if mode == FORWARD else ALL_PHASES) for mode in modes]
    if measured.inference_mode != FORWARD:  # its forward phase stands in for the forward pass
        columns.insert(0, (f"{FORWARD} phase", measured.inference_mode, FORWARD))
    top = measured.tables["top_kernels"]
    texts = {(row.run, row.scope): _top_text(row, measured) for row in top[top["rank"] == 1].itertuples()}
    dimensions = shown_dimensions(measured.runs, LEADING_KEYS, hidden=(MODE.key,))
    lines = []
    for _, runs in measured.runs.groupby(keys_without(MODE.key), sort=False):
        by_mode = {row["mode"]: row for row in runs.to_dict("records")}
        cells = (_cell(texts, by_mode.get(mode), scope) for _, mode, scope in columns)
        lines.append((*leading_cells(runs.iloc[0], dimensions), *cells))
    headings = (*headings_of(dimensions), *(heading for heading, _, _ in columns))
    return MarkdownTable(headings, tuple(lines), first_right=len(headings))


def _cell(texts: dict[tuple[str, str], str], run: dict | None, scope: str) -> str:
    if run is None:
        return NOT_IN_GRID
    return texts.get((run["run"], scope), status_word(run[CAPTURE.status_column]))


def _top_text(row, measured: Measured) -> str:
    time = with_spread(row.gpu_time_ms, row.gpu_time_std_ms, "ms")
    times = count(row.invocations) + ("" if row.same_in_every_step else " (mean)")
    return f"{measured.label(row.kernel)}: {time}, {times} ×, {percent(row.share)}"
