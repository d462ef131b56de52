"""The sentences of the answers, chosen by the data: each function returns what the tables show, in Markdown."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from profile_grid.markdown import code, escaped
from profile_grid.quantities import count, interval, percent, points, ratio, significant, with_spread
from profile_grid.tables.attention import MASK, PARTS, SCORES, SOFTMAX, VALUES
from profile_grid.tables.measured import Measured, extremes, listed, of_all, places, stand_in, where
from profile_grid.tables.shares import (
    NON_TRIVIAL_SHARE,
    family_shares,
    matmul_change,
    others_share,
    phase_shares,
    training_change,
)
from profile_grid.tables.summary import ALL_PHASES, FORWARD, FORWARD_OTHERS, MATMUL, NO_RANGE

SAME_SHARE = 0.005
NO_FORWARD_PASS = "Not answered: no capture of a forward pass is whole."
TRAINING = {"forward_backward": "forward + backward", "train_step": "the training step"}
PASSES = {FORWARD: "the forward pass", **TRAINING}


def top_kernel_sentences(of: Measured) -> list[str]:
    """(b) The top kernel of the forward pass, its invocations, and whether training has the same."""
    if not of.has_kernels:
        return [no_kernels_sentence(of)]
    top = _top(of.inference("top_kernels"), FORWARD)
    if top.empty:
        return [NO_FORWARD_PASS]
    sentences = [*stand_in(of), _top_sentence(top, of), _invocations_sentence(top, of)]
    for mode in ("forward_backward", "train_step"):
        rows = _top(of.mode("top_kernels", mode), ALL_PHASES).dropna(subset="same_as_forward")
        if not rows.empty:
            sentences.append(_same_sentence(rows, TRAINING[mode], of))
    return sentences


def other_kernel_sentences(of: Measured) -> list[str]:
    """(c) What the forward pass spends outside matrix multiplies: classes, parts of the model, kernels."""
    if not of.has_kernels:
        return [no_kernels_sentence(of)]
    others = others_share(of)
    if others.empty:
        return [NO_FORWARD_PASS]
    spends = extremes(others, "share", lambda row: percent(row["share"]))
    sentences = [f"Outside matrix multiplies the forward pass spends {spends} of its {of.words.time}."]
    families = family_shares(of.inference("forward_classes")).query("family != @MATMUL")
    sentences += [*stand_in(of), *_family_sentences(families), *_fused_sentence(of), *_part_sentences(of)]
    top = _top(of.inference("top_kernels"), FORWARD_OTHERS)
    leaders = _leaders([of.label(kernel) for kernel in top["kernel"]])
    return [*sentences, f"The longest of these {of.words.kernels} by name is {leaders}."] if leaders else sentences


def class_share_sentences(of: Measured) -> list[str]:
    """(d) How the shares of the kernel classes change from inference to training, and by phase."""
    if not of.has_kernels:
        return [no_kernels_sentence(of)]
    change = matmul_change(of)
    if change.empty:
        return [*_matmul_alone(of), *_phase_sentences(of)]
    return [_change_sentence(change, of), *_gain_sentences(of), *_phase_sentences(of)]


def attention_sentences(of: Measured) -> list[str]:
    """(e) Softmax against the matrix multiplies of attention: runtime beside FLOPs."""
    if not of.has_kernels:
        return [no_kernels_sentence(of)]
    rows, fused = of.inference("attention"), _fused_sentence(of)
    if of.inference("forward_classes").empty:
        return [NO_FORWARD_PASS]
    missing = [part for part in (SCORES, SOFTMAX, VALUES) if part not in set(rows["part"])]
    if missing:
        names = listed([f"`{part}`" for part in missing])
        return [
            f"Softmax and matrix multiplies inside attention cannot be told apart: the captures have no range {names}."
            " Name the functions under `program.annotate` in `config.yaml`.",
            *fused,
        ]
    softmax = rows[(rows["part"] == SOFTMAX) & rows["runtime_to_matmuls"].notna()]
    return [*stand_in(of), *_ratio_sentences(softmax), *_longest_part(rows), *_layers_sentence(rows), *fused]


def no_kernels_sentence(of: Measured) -> str:
    """That no kernels were captured on this machine, and why, as far as the runs say."""
    reasons = [*of.runs["reason"].dropna(), *of.runs["note"].dropna()]
    why = "; ".join(dict.fromkeys(str(reason) for reason in reasons)) or "the runs give no reason"
    by = f" by {of.machine.profiler}" if of.machine.backend else ""
    return f"Not answered: no {of.words.kernels} were captured{by} ({escaped(why)})."


def _fused_sentence(of: Measured) -> list[str]:
    """That fused attention kernels hold matrix multiplies which no share of those counts, where there are any."""
    shares = family_shares(of.inference("forward_classes")).query("family == 'attention' and share > 0")
    if shares.empty:
        return []
    return [
        f"Fused attention {of.words.kernels} ({interval(shares['share'], percent)} of the forward pass) hold matrix"
        " multiplies and softmax in one; they count as attention, not as matrix multiplies."
    ]


def _top(table: pd.DataFrame, scope: str) -> pd.DataFrame:
    return table[(table["scope"] == scope) & (table["rank"] == 1)]


def _top_sentence(top: pd.DataFrame, of: Measured) -> str:
    words = of.words
    if top["kernel"].nunique() == 1:
        row = top.iloc[0]
        takes = f"{of.label(row['kernel'])} takes the most {words.time} in the forward pass of"
        many = f"{interval(top['share'], percent)} of it, {interval(top['invocations'], count)} invocations per pass"
        if len(top) > 1:
            return f"{takes} {of_all(len(top), len(top))}: {many}."
        time = with_spread(row["gpu_time_ms"], row["gpu_time_std_ms"], "ms")
        return f"{takes} {where(row)}: {time} per pass, {many}."
    shares = interval(top["share"], percent)
    return (
        f"In the forward pass the {words.kernel} with the most {words.time} is"
        f" {_leaders(_kinds(top, words.kernel))}: {top['kernel'].nunique()} different ones, with {shares} of the"
        f" {words.time} and"
        f" {interval(top['invocations'], count)} invocations per pass."
    )


def _invocations_sentence(top: pd.DataFrame, of: Measured) -> str:
    """Whether every measured step has as many invocations of the top kernel."""
    captured = of.tables["forward_time"].set_index("run")["steps_captured"]
    if (top["run"].map(captured) == 1).all():
        return "One step was captured, so whether every step has as many cannot be said."
    uneven = top[~top["same_in_every_step"].astype(bool)]
    if uneven.empty:
        return "Every measured step has the same number of them."
    return f"The number differs between the measured steps of {places(uneven)}: what stands there is the mean."


def _same_sentence(rows: pd.DataFrame, training: str, of: Measured) -> str:
    """Whether the top kernel of the forward pass is also the top kernel of this mode."""
    other = rows[~rows["same_as_forward"].astype(bool)]
    if other.empty:
        return f"The same {of.words.kernel} leads in {training}{_in_all(rows)}."
    labels = [of.label(kernel) for kernel in other["kernel"]]
    leads = labels[0] if len(set(labels)) == 1 else _leaders(labels)
    if len(other) == len(rows):
        return f"In {training} another {of.words.kernel} leads{_in_all(rows)}: {leads}."
    same = of_all(len(rows) - len(other), len(rows))
    return f"The same {of.words.kernel} leads in {training} in {same}; elsewhere it is {leads}."


def _in_all(rows: pd.DataFrame) -> str:
    return f" in {of_all(len(rows), len(rows))}" if len(rows) > 1 else ""


def _in_some(some: pd.DataFrame, every: pd.DataFrame) -> str:
    return f" in {of_all(len(some), len(every))}" if len(every) > 1 else ""


def _kinds(rows: pd.DataFrame, noun: str) -> list[str]:
    return [f"{'an' if name[0] in 'aeiou' else 'a'} {escaped(name)} {noun}" for name in rows["class"]]


def _leaders(names: list[str], most: int = 3) -> str:
    """Who leads in how many configurations: "**gemm 1** in 12 of 20 configurations, **norm 1** in 8"."""
    ranking = Counter(names).most_common()
    if not ranking:
        return ""
    if len(ranking) == 1:
        return f"{ranking[0][0]}" + (f" in {of_all(len(names), len(names))}" if len(names) > 1 else "")
    first, *rest = ranking[:most]
    told = [f"{first[0]} in {of_all(first[1], len(names))}", *(f"{name} in {number}" for name, number in rest)]
    left = sum(number for _, number in ranking[most:])
    return listed([*told, f"others in {left}"] if left else told)


def _family_sentences(families: pd.DataFrame) -> list[str]:
    """Which other classes take a non-trivial share, which do not, and what no rule knows."""
    largest = families.groupby("family")["share"].max().sort_values(ascending=False)
    told = [
        f"{escaped(name)} ({interval(families.loc[families['family'] == name, 'share'], percent)})"
        for name in largest[largest >= NON_TRIVIAL_SHARE].index
    ]
    small = [escaped(name) for name in largest[(largest < NON_TRIVIAL_SHARE) & (largest > 0)].index]
    sentences = [f"Non-trivial are {listed(told)}."] if told else ["No other class reaches 1 %."]
    if small and told:
        sentences.append(f"Below 1 % everywhere: {listed(small)}.")
    return sentences


def _part_sentences(of: Measured) -> list[str]:
    """Which part of the model the other kernels serve, where the capture has ranges that say so."""
    parts = of.inference("forward_parts")
    inner = parts[parts["part"] != NO_RANGE]
    if inner.empty:
        return [
            f"Which part of the model these {of.words.kernels} serve cannot be said: the captures have no range inside"
            " `forward`. Name functions under `program.annotate` in `config.yaml`."
        ]
    longest = inner[inner["other_time_ms"] > 0].sort_values("other_time_ms", ascending=False, kind="stable")
    first = longest.drop_duplicates("run")
    if first.empty:
        return []
    shares = interval(first["share_of_others"], percent)
    leaders = _leaders([code(part) for part in first["part"]])
    return [f"The part of the model with the most of it is {leaders} ({shares} of the time outside matrix multiplies)."]


def _matmul_alone(of: Measured) -> list[str]:
    """The share of matrix multiplies in each mode, where no model was captured both in inference and in training."""
    shares = family_shares(of.tables["class_shares"].query("phase == @ALL_PHASES"))
    matmul = shares[shares["family"] == MATMUL]
    told = [
        f"{interval(rows['share'], percent)} of the {of.words.time} of {PASSES[mode]}"
        for mode, rows in matmul.groupby("mode", sort=False)
    ]
    sentences = [f"Matrix multiplies take {listed(told)}."] if told else []
    return [*sentences, "Inference and training cannot be compared: no model has a whole capture of both."]


def _change_sentence(change: pd.DataFrame, of: Measured) -> str:
    """How the share of matrix multiplies changes from inference to training."""
    training = TRAINING[of.training_mode]
    falls, rises = change[change["change"] <= -SAME_SHARE], change[change["change"] >= SAME_SHARE]
    still = len(change) - len(falls) - len(rises)
    before, after = interval(change["inference"], percent), interval(change["training"], percent)
    told = [
        f"{verb}{_in_some(rows, change)} by {interval(rows['change'].abs(), points_of)} percentage points"
        for verb, rows in (("falls", falls), ("rises", rises))
        if not rows.empty
    ]
    if still:
        told.append("stays within half a point" + (f" in {of_all(still, len(change))}" if len(change) > 1 else ""))
    return f"From inference ({before}) to {training} ({after}) the share of matrix multiplies {listed(told)}."


def points_of(difference: float) -> str:
    """An amount of percentage points without a sign."""
    return points(abs(difference)).lstrip("+")


def _gain_sentences(of: Measured) -> list[str]:
    """Which class gains and which loses the most, on average over the configurations."""
    change = training_change(of)
    mean = change[change["family"] != MATMUL].groupby("family")["change"].mean()
    if mean.empty:
        return []
    told = []
    for name, verb in ((mean.idxmax(), "gains"), (mean.idxmin(), "loses")):
        span = interval(change.loc[change["family"] == name, "change"], points)
        if abs(mean[name]) >= SAME_SHARE and (mean[name] > 0) == (verb == "gains"):
            told.append(f"{escaped(name)} {verb} the most ({span} points)")
    return [f"Of the other classes {listed(told)}."] if told else ["No other class changes by half a point on average."]


def _phase_sentences(of: Measured) -> list[str]:
    """What each phase of the training step takes, and how much of that is matrix multiplies."""
    if of.training_mode is None:
        return []
    phases = phase_shares(of)
    told = [
        f"{escaped(phase)} {interval(rows['of_step'], percent)} ({interval(rows['matmul'], percent)})"
        for phase, rows in phases.groupby("phase", sort=False)
        if rows["of_step"].max() >= NON_TRIVIAL_SHARE
    ]
    time = f"{of.words.time} of {TRAINING[of.training_mode]} by phase (in brackets: matrix multiplies, of the phase)"
    return [f"{time[0].upper()}{time[1:]}: {listed(told)}."] if told else []


def _ratio_sentences(softmax: pd.DataFrame) -> list[str]:
    if softmax.empty:
        return ["No run has ranges for softmax and for both matrix multiplies."]
    slower = softmax["runtime_to_matmuls"] / softmax["flops_to_matmuls"]
    times, flops = interval(softmax["runtime_to_matmuls"], ratio), interval(softmax["flops_to_matmuls"], percent)
    amount = interval(slower, significant)
    if (slower > 1).all():
        compared = f"so one of its FLOPs takes {amount} times as long as one of theirs"
    elif (slower < 1).all():
        compared = f"so one of its FLOPs takes only {amount} of the time of one of theirs"
    else:
        compared = f"so one of its FLOPs takes {amount} times as long as one of theirs, by configuration"
    return [f"Softmax takes {times} the time of the two matrix multiplies with {flops} of their FLOPs, {compared}."]


def _longest_part(rows: pd.DataFrame) -> list[str]:
    parts = rows[rows["part"].isin(PARTS)].sort_values("gpu_time_ms", ascending=False, kind="stable")
    first = parts.drop_duplicates("run")
    sentence = f"The longest of the parts of attention is {_leaders([code(part) for part in first['part']])}."
    return [sentence] if MASK in set(parts["part"]) else [sentence, f"No range `{MASK}` was captured."]


def _layers_sentence(rows: pd.DataFrame) -> list[str]:
    odd = rows[(rows["part"] == SOFTMAX) & (rows["instances_per_pass"] != rows["layers"].astype("float64"))]
    if odd.empty:
        return []
    return [f"`{SOFTMAX}` does not run once per layer in {places(odd)}: there a layer is one instance of the range."]
