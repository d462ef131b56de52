"""The sentences of (d): how the shares of the kernel classes change from inference to training, and by phase."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import code, escaped
from profile_grid.quantities import interval, percent, points
from profile_grid.questions.d_training_vs_inference.shares import matmul_change, phase_shares, training_change
from profile_grid.tables.classes import MATMUL, NON_TRIVIAL_SHARE, family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, BACKWARD
from profile_grid.tables.wording import PASSES, TRAINING, capital, in_some, leaders, listed, no_kernels_sentence, of_all

SAME_SHARE = 0.005


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
