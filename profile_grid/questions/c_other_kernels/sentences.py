"""The sentences of (c): what the forward pass spends outside matrix multiplies."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import code, escaped
from profile_grid.quantities import interval, percent
from profile_grid.study.dimensions import LEADING
from profile_grid.tables.classes import MATMUL, NON_TRIVIAL_SHARE, family, family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import FORWARD_OTHERS, NO_RANGE
from profile_grid.tables.wording import (
    NO_FORWARD_PASS,
    extremes,
    fused_sentence,
    leaders,
    listed,
    no_kernels_sentence,
    stand_in,
    top_of,
)


def sentences(measured: Measured) -> list[str]:
    """(c) What the forward pass spends outside matrix multiplies: classes, parts of the model, kernels."""
    if not measured.has_kernels:
        return [no_kernels_sentence(measured)]
    others = others_share(measured)
    if others.empty:
        return [NO_FORWARD_PASS]
    spends = extremes(others, "share", lambda row: percent(row["share"]))
    found = [f"Outside matrix multiplies the forward pass spends {spends} of its {measured.words.time}."]
    classes = measured.inference("forward_classes")
    families = family_shares(classes)
    families = families[families["family"] != MATMUL]
    fused = fused_sentence(measured, classes)
    found += [*stand_in(measured), *_family_sentences(families), *fused, *_part_sentences(measured)]
    top = top_of(measured.inference("top_kernels"), FORWARD_OTHERS)
    first, words = leaders([measured.label(kernel) for kernel in top["kernel"]]), measured.words
    return [*found, f"Of these {words.kernels} the one with the most {words.time} is {first}."] if first else found


def others_share(measured: Measured) -> pd.DataFrame:
    """Per run of the inference mode the share of the forward pass's GPU time that is no matrix multiply."""
    classes = measured.inference("forward_classes")
    is_other = classes["class"].map(family) != MATMUL
    shares = classes.assign(share=classes["share"].where(is_other, 0.0)).groupby(LEADING, sort=False)["share"].sum()
    return shares.reset_index()


def _family_sentences(families: pd.DataFrame) -> list[str]:
    """Which other classes take a non-trivial share, which do not, and what no rule knows."""
    largest = families.groupby("family")["share"].max().sort_values(ascending=False)
    told = [
        f"{escaped(name)} ({interval(families.loc[families['family'] == name, 'share'], percent)})"
        for name in largest[largest >= NON_TRIVIAL_SHARE].index
    ]
    small = [escaped(name) for name in largest[(largest < NON_TRIVIAL_SHARE) & (largest > 0)].index]
    sentences = (
        [f"Classes that take 1 % or more somewhere: {listed(told)}."] if told else ["No other class reaches 1 %."]
    )
    if small and told:
        sentences.append(f"Below 1 % everywhere: {listed(small)}.")
    return sentences


def _part_sentences(measured: Measured) -> list[str]:
    """Which part of the model the other kernels serve, where the capture has ranges that say so."""
    parts = measured.inference("forward_parts")
    inner = parts[parts["part"] != NO_RANGE]
    if inner.empty:
        return [
            f"Which part of the model these {measured.words.kernels} serve cannot be said: the captures have no range"
            " inside `forward`. Name functions under `program.annotate` in `config.yaml`."
        ]
    longest = inner[inner["other_time_ms"] > 0].sort_values("other_time_ms", ascending=False, kind="stable")
    first = longest.drop_duplicates("run")
    if first.empty:
        return []
    shares = interval(first["share_of_others"], percent)
    most = leaders([code(part) for part in first["part"]])
    return [f"The part of the model that takes most of that time is {most} ({shares} of it)."]
