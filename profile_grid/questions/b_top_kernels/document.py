"""What the document of (b) says: sentences and tables."""

from collections import Counter

import pandas as pd

from cs336_model.ranges import TRAIN_STEP
from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import count, counted, interval, percent, with_spread
from profile_grid.study.dimensions import MODE, MODES, keys_without
from profile_grid.study.stages import CAPTURE
from profile_grid.tables import wording
from profile_grid.tables.cells import MODEL_AND_CONTEXT, NOT_IN_GRID, Part, headings_of, leading_cells, status_word
from profile_grid.tables.classes import family
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, FORWARD
from profile_grid.tables.pivoting import shown_dimensions
from profile_grid.tables.wording import TRAINING, Claim, median_note, of_all

SHORT_NAMES_OF_MODES = {TRAIN_STEP: "training"}  # in the lead, whose number of words is limited


def sentences(measured: Measured) -> list[Claim]:
    """(b) The top kernel of the forward pass, its invocations, and whether it is the top kernel of training."""
    if not measured.has_kernels:
        return [wording.no_kernels_sentence(measured)]
    forward_tops = wording.first_ranked(measured.inference("top_kernels"), FORWARD)
    if forward_tops.empty:
        return [wording.NO_FORWARD_PASS]
    step_tops = {mode: wording.first_ranked(measured.mode("top_kernels", mode), ALL_PHASES) for mode in TRAINING}
    step_tops = {mode: tops.dropna(subset="same_as_forward") for mode, tops in step_tops.items()}
    step_tops = {mode: tops for mode, tops in step_tops.items() if len(tops)}  # by training mode, the fullest last
    lead_mode = list(step_tops)[-1] if step_tops else None
    lead = _lead(forward_tops, lead_mode, step_tops.get(lead_mode), measured)
    claims = [lead, *wording.mode_note(measured), _invocations(forward_tops, measured)]
    for mode, tops in step_tops.items():
        training_claims = _training_after_lead if mode == lead_mode else _training
        claims += training_claims(mode, tops, measured)
    return claims


def _lead(forward_tops: pd.DataFrame, mode: str | None, step_tops: pd.DataFrame | None, measured: Measured) -> Claim:
    """The top kernel of the forward pass (if runs differ, its commonest class) and its share. Then, unless `mode` and
    `step_tops` are None: in how many runs of a training mode the same kernel leads, or that another leads in all."""
    names = forward_tops["class"].map(family).map(escaped)
    if forward_tops["kernel"].nunique() == 1:
        names = forward_tops["kernel"].map(measured.label)
    name, name_runs = Counter(names).most_common(1)[0]
    training = ""
    if mode:
        same_runs = int(step_tops["same_as_forward"].astype(bool).sum())
        leader = f"the same {measured.words.kernel}" if same_runs else f"another {measured.words.kernel}"
        training = f"; {leader} leads {SHORT_NAMES_OF_MODES.get(mode, MODES[mode])}"
        if len(step_tops) > 1:  # if the same kernel leads in no run, another one leads in all
            training += f" in {of_all(same_runs or len(step_tops), len(step_tops), 'run')}"
    runs, shares = of_all(name_runs, len(forward_tops), "run"), forward_tops["share"]
    return Claim(
        "The top {kernel} takes {share} of the forward pass{median}: {kind}{runs}{training}.",
        "counted", kind=name, runs=f" in {runs}" if len(forward_tops) > 1 else "", kernel=measured.words.kernel,
        share=interval(shares, percent), median=median_note(shares, percent), training=training,
    )  # fmt: skip


def _invocations(forward_tops: pd.DataFrame, measured: Measured) -> Claim:
    """Invocations of the top kernel in a pass, and whether they are the same in every captured step."""
    uneven_rows = forward_tops[~forward_tops["same_in_every_step"].astype(bool)]
    step_counts = measured.runs.set_index("run")["steps_captured"]
    over_steps = "the same in every captured step"
    if (forward_tops["run"].map(step_counts) == 1).all():
        over_steps = "of the one captured step"
    elif len(uneven_rows):
        over_steps = f"the mean of captured steps that differ in {wording.configs_in_words(uneven_rows)}"
    text = "The top {kernel} of the forward pass is launched {times}, {every}."
    times = counted(forward_tops["invocations"], "time")
    return Claim(text, "counted", kernel=measured.words.kernel, times=times, every=over_steps)


def _training(mode: str, tops: pd.DataFrame, measured: Measured) -> list[Claim]:
    """In how many runs of a training mode another kernel leads than in the forward pass, and which, if it is always the
    same; or that none does."""
    kernel, other_tops = measured.words.kernel, _other_tops(tops)
    if other_tops.empty:
        return [Claim("In {mode}, the same {kernel} leads.", mode=TRAINING[mode], kernel=kernel)]
    which = f": {measured.label(other_tops['kernel'].iloc[0])}" if other_tops["kernel"].nunique() == 1 else ""
    text, runs = "In {mode}, another {kernel} leads in {runs}{which}.", of_all(len(other_tops), len(tops), "run")
    return [Claim(text, "counted", runs=runs, mode=TRAINING[mode], kernel=kernel, which=which)]


def _training_after_lead(mode: str, tops: pd.DataFrame, measured: Measured) -> list[Claim]:
    """What the lead does not say about its training mode: which other kernel leads, if it is always the same."""
    other_tops = _other_tops(tops)
    if other_tops["kernel"].nunique() != 1:
        return []
    if len(other_tops) < len(tops):
        return _training(mode, tops, measured)
    text, which = "The top {kernel} of {mode} is {which}.", measured.label(other_tops["kernel"].iloc[0])
    return [Claim(text, "counted", kernel=measured.words.kernel, mode=TRAINING[mode], which=which)]


def _other_tops(tops: pd.DataFrame) -> pd.DataFrame:
    """The top kernels that are not the top kernel of the forward pass."""
    return tops[~tops["same_as_forward"].astype(bool)]


def tables(measured: Measured) -> list[Part]:
    """(b) The top kernel of every mode side by side; no table without kernels."""
    words = measured.words
    figures = f"{words.time} and invocations in one pass or step, and share of its {words.time}"
    return [(f"Top {words.kernel}: {figures}", _top_kernel_table(measured))] if measured.has_kernels else []


def _top_kernel_table(measured: Measured) -> MarkdownTable:
    """A line per configuration, a column per mode: the top kernel, its time and invocations per pass, and its share."""
    modes = [mode for mode in MODES if mode in set(measured.runs["mode"])]
    # by heading: (mode, scope of top_kernels)
    columns = {MODES[mode]: (mode, FORWARD if mode == FORWARD else ALL_PHASES) for mode in modes}
    if measured.inference_mode != FORWARD:  # its forward phase stands in for the forward pass
        columns = {f"{FORWARD} phase": (measured.inference_mode, FORWARD)} | columns
    top = measured.tables["top_kernels"]
    texts = {(row.run, row.scope): _top_text(row, measured) for row in top[top["rank"] == 1].itertuples()}

    def cell(run: dict | None, scope: str) -> str:
        if run is None:
            return NOT_IN_GRID
        return texts.get((run["run"], scope), status_word(run[CAPTURE.status_column]))

    dimensions = shown_dimensions(measured.runs, MODEL_AND_CONTEXT, hidden=(MODE.key,))
    lines = []
    for _, runs in measured.runs.groupby(keys_without(MODE.key), sort=False):
        run_by_mode = {run["mode"]: run for run in runs.to_dict("records")}
        cells = (cell(run_by_mode.get(mode), scope) for mode, scope in columns.values())
        lines.append((*leading_cells(runs.iloc[0], dimensions), *cells))
    headings = (*headings_of(dimensions), *columns)
    return MarkdownTable(headings, tuple(lines), first_right=len(headings))


def _top_text(row, measured: Measured) -> str:
    """The text of a cell from a row of top_kernels, as itertuples gives it."""
    time = with_spread(row.gpu_time_ms, row.gpu_time_std_ms, "ms")
    times = count(row.invocations) + ("" if row.same_in_every_step else " (mean)")
    return f"{measured.label(row.kernel)}: {time}, {times} ×, {percent(row.share)}"
