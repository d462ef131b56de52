"""What the document of (c) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import ABSENT, interval, known, percent
from profile_grid.study.dimensions import CONTEXT_LENGTH, LEADING, MODE, MODEL
from profile_grid.tables.apart import pivoted, split
from profile_grid.tables.cells import by_size, run_table, small_ones_together
from profile_grid.tables.classes import MATMUL, NON_TRIVIAL_SHARE, family, family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import told_apart
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

MAX_NAMED = 3


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


def class_table(measured: Measured) -> MarkdownTable:
    """(c) Shares of the forward pass's GPU time by class, the classes with most time first."""
    shares = family_shares(measured.inference("forward_classes"))
    shares = small_ones_together(shares, ["share"], LEADING)
    families = by_size(shares)
    wide = pivoted(shares, ["run"], "family", ["share"])["share"]
    cells = {run: tuple(percent(wide.loc[run, name]) for name in families) for run in wide.index}
    return run_table(measured, tuple(escaped(name) for name in families), cells)


def others_table(measured: Measured) -> MarkdownTable:
    """(c) Outside matrix multiplies: the parts of the model and the kernels with most time, in order."""
    parts, top = told_apart(measured.inference("forward_parts")), measured.inference("top_kernels")
    top = top[top["scope"] == FORWARD_OTHERS]
    cells = {}
    for run in measured.runs["run"]:
        own = parts[(parts["run"] == run) & (parts["other_time_ms"] > 0)].nlargest(MAX_NAMED, "other_time_ms")
        named = top[top["run"] == run].head(MAX_NAMED)
        if not named.empty:
            told = [f"{escaped(row.part)} {percent(row.other_share)}" for row in own.itertuples()]
            kernels = [f"{measured.label(row.kernel)} {percent(row.share)}" for row in named.itertuples()]
            cells[run] = (*([] if parts.empty else [", ".join(told)]), ", ".join(kernels))
    headings = (*([] if parts.empty else ["parts of the model"]), measured.words.kernels)
    return run_table(measured, headings, cells, text=True)


def parts_tables(measured: Measured) -> tuple[int, list[tuple[str, MarkdownTable]]] | None:
    """(c) Share of the forward pass by part of the model, one column per model, and the context at which: the longest
    that most models have. One table for each combination of further dimensions that vary, with its title."""
    parts = told_apart(measured.inference("forward_parts"))
    if parts.empty:
        return None
    models_at = parts.groupby(CONTEXT_LENGTH.key)[MODEL.key].nunique()
    context = max(models_at[models_at == models_at.max()].index)
    rows = parts[parts[CONTEXT_LENGTH.key] == context]
    shown = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
    return int(context), [(title, _parts_table(some)) for title, some in split(rows, shown)]


def _parts_table(rows: pd.DataFrame) -> MarkdownTable:
    wide = pivoted(rows, ["part"], MODEL.key, ["share", "other_share"])
    models = list(dict.fromkeys(rows[MODEL.key]))
    order = wide["share"].mean(axis=1).sort_values(ascending=False).index
    lines = tuple(
        (escaped(part), *(_share_and_others(wide["share"][m][part], wide["other_share"][m][part]) for m in models))
        for part in order
    )
    return MarkdownTable(("part", *(escaped(model) for model in models)), lines, first_right=1)


def _share_and_others(share: float, others: float) -> str:
    return f"{percent(share)} ({percent(others)})" if known(share) else ABSENT
