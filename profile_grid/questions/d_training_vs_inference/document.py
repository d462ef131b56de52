"""What the document of (d) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import ABSENT, interval, percent, points, significant
from profile_grid.questions.d_training_vs_inference.shares import matmul_change, phase_shares, training_change
from profile_grid.study.dimensions import MODE, keys_without
from profile_grid.tables.apart import pivoted
from profile_grid.tables.cells import by_size, run_table, small_ones_together
from profile_grid.tables.classes import MATMUL, NON_TRIVIAL_SHARE, family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, BACKWARD, FORWARD
from profile_grid.tables.wording import PASSES, TRAINING, capital, in_some, leaders, listed, no_kernels_sentence, of_all

SAME_SHARE = 0.005
MOST_PARTS = 7
VISIBLE_SHARE = 0.0005  # a phase that reads 0.0 % in every row has no column


def sentences(measured: Measured) -> list[str]:
    """(d) How the shares of the kernel classes change from inference to training, and by phase."""
    if not measured.has_kernels:
        return [no_kernels_sentence(measured)]
    change = matmul_change(measured)
    if change.empty:
        return [*_matmul_alone(measured), *_phase_sentences(measured), *_parts_sentence(measured)]
    told = [_change_sentence(change, measured), *_gain_sentences(measured), *_phase_sentences(measured)]
    return [*told, *_parts_sentence(measured)]


def _matmul_alone(measured: Measured) -> list[str]:
    """The share of matrix multiplies in each mode, where no model was captured both in inference and in training."""
    classes = measured.tables["class_shares"]
    shares = family_shares(classes[classes["phase"] == ALL_PHASES])
    matmul = shares[shares["family"] == MATMUL]
    told = [
        f"{interval(rows['share'], percent)} of the {measured.words.time} of {PASSES[mode]}"
        for mode, rows in matmul.groupby("mode", sort=False)
    ]
    found = [f"Matrix multiplies take {listed(told)}."] if told else []
    return [*found, "Inference and training cannot be compared: no model has a whole capture of both."]


def _change_sentence(change: pd.DataFrame, measured: Measured) -> str:
    """How the share of matrix multiplies changes from inference to training."""
    training = TRAINING[measured.training_mode]
    falls, rises = change[change["change"] <= -SAME_SHARE], change[change["change"] >= SAME_SHARE]
    still = len(change) - len(falls) - len(rises)
    before, after = interval(change["inference"], percent), interval(change["training"], percent)
    told = [
        f"{verb}{in_some(rows, change)} by {interval(rows['change'].abs(), points_of)} percentage points"
        for verb, rows in (("falls", falls), ("rises", rises))
        if not rows.empty
    ]
    if still:
        told.append("stays within half a point" + (f" in {of_all(still, len(change))}" if len(change) > 1 else ""))
    return f"From inference ({before}) to {training} ({after}) the share of matrix multiplies {listed(told)}."


def points_of(difference: float) -> str:
    """An amount of percentage points without a sign."""
    return points(abs(difference)).lstrip("+")


def _gain_sentences(measured: Measured) -> list[str]:
    """Which class gains and which loses the most, on average over the configurations."""
    change = training_change(measured)
    mean = change[change["family"] != MATMUL].groupby("family")["change"].mean()
    if mean.empty:
        return []
    told = []
    for name, verb in ((mean.idxmax(), "gains"), (mean.idxmin(), "loses")):
        span = interval(change.loc[change["family"] == name, "change"], points)
        if abs(mean[name]) >= SAME_SHARE and (mean[name] > 0) == (verb == "gains"):
            told.append(f"{escaped(name)} {verb} the most ({span} points)")
    return [f"Of the other classes {listed(told)}."] if told else ["No other class changes by half a point on average."]


def _phase_sentences(measured: Measured) -> list[str]:
    """What each phase of the training step takes, and how much of that is matrix multiplies."""
    if measured.training_mode is None:
        return []
    phases = phase_shares(measured)
    told = [
        f"{escaped(phase)} {interval(rows['of_step'], percent)} ({interval(rows['matmul'], percent)})"
        for phase, rows in phases.groupby("phase", sort=False)
        if rows["of_step"].max() >= NON_TRIVIAL_SHARE
    ]
    time = f"{measured.words.time} of {TRAINING[measured.training_mode]} by phase"
    brackets = "(in brackets: matrix multiplies, of the phase)"
    return [f"{capital(time)} {brackets}: {listed(told)}."] if told else []


def _parts_sentence(measured: Measured) -> list[str]:
    """Which part of the model takes the most time backward, where the captures tell."""
    parts = measured.tables["training_parts"]
    backward = parts[(parts["mode"] == measured.training_mode) & (parts["pass"] == BACKWARD)]
    first = backward.sort_values("gpu_time_ms", ascending=False, kind="stable").drop_duplicates("run")
    if first.empty:
        return []
    most = leaders([code(part) for part in first["part"]])
    share = interval(first["share"], percent)
    return [f"The part of the model that takes most of the backward pass is {most} ({share} of it)."]


def change_table(measured: Measured) -> MarkdownTable | None:
    """(d) Every class's share in inference and in training; the first columns are the matrix multiplies. None where
    no configuration has both."""
    place = keys_without(MODE.key)
    change = small_ones_together(training_change(measured), ["inference", "training"], place)
    if change.empty:
        return None
    wide = pivoted(change, place, "family", ["inference", "training"])
    families = by_size(change.assign(share=change[["inference", "training"]].max(axis=1)))
    cells = {}
    for run in measured.runs[measured.runs["mode"] == measured.training_mode].to_dict("records"):
        at = tuple(run[key] for key in place)
        if at in wide.index:
            before, after = wide.loc[at, "inference"], wide.loc[at, "training"]
            cells[run["run"]] = tuple(_change_cell(before[name], after[name], name == MATMUL) for name in families)
    return run_table(measured, tuple(f"{escaped(name)}, %" for name in families), cells, measured.training_mode)


def phase_table(measured: Measured) -> MarkdownTable | None:
    """(d) Each phase's share of the training step, and of that phase the share of matrix multiplies; None where no
    training was captured."""
    shares = phase_shares(measured)
    if shares.empty:
        return None
    largest = shares.groupby("phase")["of_step"].max()
    phases = [phase for phase in dict.fromkeys(shares["phase"]) if largest[phase] >= VISIBLE_SHARE]
    cells = {}
    for run, rows in shares.groupby("run", sort=False):
        found = {row.phase: f"{percent(row.of_step)} ({percent(row.matmul)})" for row in rows.itertuples()}
        cells[run] = tuple(found.get(phase, ABSENT) for phase in phases)
    return run_table(measured, tuple(escaped(phase) for phase in phases), cells, measured.training_mode)


def parts_table(measured: Measured) -> MarkdownTable | None:
    """(d) Time of the parts with most of it, forward and backward; None where no capture tells the backward ones."""
    rows = _of_training(measured)
    if rows.empty:
        return None
    most = rows.groupby("part")["share"].max().sort_values(ascending=False).index[:MOST_PARTS]
    parts = [part for part in dict.fromkeys(rows["part"]) if part in most]
    cells = {}
    for run, own in rows.groupby("run", sort=False):
        wide = pivoted(own, ["part"], "pass", ["gpu_time_ms"])["gpu_time_ms"]
        cells[run] = tuple(_both_passes(wide.loc[part]) if part in wide.index else ABSENT for part in parts)
    return run_table(measured, tuple(f"{escaped(part)}, ms" for part in parts), cells, measured.training_mode)


def _of_training(measured: Measured) -> pd.DataFrame:
    """The forward and backward times of parts in the mode that answers for training; no rows where there is none."""
    rows = measured.tables["training_parts"]
    return rows[(rows["mode"] == measured.training_mode) & rows["pass"].isin((FORWARD, BACKWARD))]


def _both_passes(times: pd.Series) -> str:
    return " → ".join(significant(times.get(one)) for one in (FORWARD, BACKWARD))


def _change_cell(before: float, after: float, with_points: bool) -> str:
    change = f" ({points(after - before)})" if with_points else ""
    return f"{100 * before:.1f} → {100 * after:.1f}{change}"
