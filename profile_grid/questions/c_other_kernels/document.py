"""What the document of (c) says: sentences and tables."""

from collections import Counter

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import interval, percent
from profile_grid.study.dimensions import CONTEXT_LENGTH, LEADING, MODE, MODEL
from profile_grid.tables.cells import by_size, parts_table, run_table, small_ones_together
from profile_grid.tables.claims import Claim
from profile_grid.tables.classes import MATMUL, NON_TRIVIAL_SHARE, family, family_shares
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import if_parts_differ
from profile_grid.tables.names import FORWARD_OTHERS, NO_RANGE
from profile_grid.tables.pivoting import pivoted, split
from profile_grid.tables.wording import (
    NO_FORWARD_PASS,
    fused_sentence,
    leaders,
    listed,
    no_kernels_sentence,
    of_all,
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
    parts, classes = _first_parts(measured), measured.inference("forward_classes")
    families = family_shares(classes)
    top = top_of(measured.inference("top_kernels"), FORWARD_OTHERS)
    kernels = leaders([measured.label(kernel) for kernel in top["kernel"]])
    claims = [_lead(others, parts), *stand_in(measured), *_families(families[families["family"] != MATMUL])]
    claims += _parts(parts, measured)
    if kernels:
        claims.append(Claim("The {kernel} that takes most of this time is {kernels}.", "counted",
                           kernel=measured.words.kernel, kernels=kernels))  # fmt: skip
    return [*claims, *fused_sentence(measured, classes)]


def others_share(measured: Measured) -> pd.DataFrame:
    """The share of the forward pass's GPU time outside matrix multiplies, per run of the inference mode."""
    classes = measured.inference("forward_classes")
    is_other = classes["class"].map(family) != MATMUL
    shares = classes.assign(share=classes["share"].where(is_other, 0.0)).groupby(LEADING, sort=False)["share"].sum()
    return shares.reset_index()


def _lead(others: pd.DataFrame, parts: pd.DataFrame) -> Claim:
    median = f" (median {percent(others['share'].median())})" if len(others) > 2 else ""
    most = f", most of it in {_commonest(parts['part'])}" if len(parts) else ""
    return Claim(
        "Everything but matrix multiplies takes {share} of the forward pass{median}{most}.",
        "counted", share=interval(others["share"], percent), median=median, most=most,
    )  # fmt: skip


def _commonest(parts: pd.Series) -> str:
    """The part that takes most in most runs: "`computing softmax` in 14 of 20 runs"."""
    (part, number), *_ = Counter(parts).most_common(1)
    return f"{code(part)} in {of_all(number, len(parts), 'run')}"


def _families(families: pd.DataFrame) -> list[Claim]:
    """The other classes with a share that is not trivial."""
    largest = families.groupby("family")["share"].max().sort_values(ascending=False)
    texts = [
        f"{escaped(name)} {interval(families.loc[families['family'] == name, 'share'], percent)}"
        for name in largest[largest >= NON_TRIVIAL_SHARE].index
    ]
    above = percent(NON_TRIVIAL_SHARE)
    if not texts:
        return [Claim("No other class reaches {above} in any run.", above=above)]
    return [Claim("Its classes: {classes} of the forward pass.", classes=listed(texts))]


def _first_parts(measured: Measured) -> pd.DataFrame:
    """By run the part of the model with the most time outside matrix multiplies, if the capture distinguishes parts."""
    parts = measured.inference("forward_parts")
    inner = parts[(parts["part"] != NO_RANGE) & (parts["other_time_ms"] > 0)]
    return inner.sort_values("other_time_ms", ascending=False, kind="stable").drop_duplicates("run")


def _parts(first: pd.DataFrame, measured: Measured) -> list[Claim]:
    if first.empty:
        return [
            Claim(
                "Which part of the model these {kernels} serve is not known: the captures have no range inside"
                " `forward`. Name functions under `program.annotate` in `config.yaml`.",
                "missing", kernels=measured.words.kernels,
            )
        ]  # fmt: skip
    text = "The part of the model that takes most of this time is {parts}, with {share} of it."
    parts = leaders([code(part) for part in first["part"]])
    return [Claim(text, "counted", parts=parts, share=interval(first["share_of_others"], percent))]


def class_table(measured: Measured) -> MarkdownTable:
    """(c) Shares of the forward pass's GPU time by class, the longest first."""
    shares = family_shares(measured.inference("forward_classes"))
    shares = small_ones_together(shares, ["share"], LEADING)
    families = by_size(shares)
    wide = pivoted(shares, ["run"], "family", ["share"])["share"]
    cells = {run: tuple(percent(wide.loc[run, name]) for name in families) for run in wide.index}
    return run_table(measured, tuple(escaped(name) for name in families), cells)


def others_table(measured: Measured) -> MarkdownTable:
    """(c) The parts of the model and the kernels with the most time outside matrix multiplies, the longest first."""
    parts, top = if_parts_differ(measured.inference("forward_parts")), measured.inference("top_kernels")
    top = top[top["scope"] == FORWARD_OTHERS]
    cells = {}
    for run in measured.runs["run"]:
        largest = parts[(parts["run"] == run) & (parts["other_time_ms"] > 0)].nlargest(MAX_NAMED, "other_time_ms")
        top_rows = top[top["run"] == run].head(MAX_NAMED)
        if not top_rows.empty:
            texts = [f"{escaped(row.part)} {percent(row.other_share)}" for row in largest.itertuples()]
            kernels = [f"{measured.label(row.kernel)} {percent(row.share)}" for row in top_rows.itertuples()]
            cells[run] = (*([] if parts.empty else [", ".join(texts)]), ", ".join(kernels))
    headings = (*([] if parts.empty else ["parts of the model"]), measured.words.kernels)
    return run_table(measured, headings, cells, text=True)


def parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(c) Share of the forward pass by part, a column per model, at the longest context that most models have. One
    table with its title for each combination of further dimensions that vary."""
    parts = if_parts_differ(measured.inference("forward_parts"))
    if parts.empty:
        return []
    models_at = parts.groupby(CONTEXT_LENGTH.key)[MODEL.key].nunique()
    context = max(models_at[models_at == models_at.max()].index)
    rows = parts[parts[CONTEXT_LENGTH.key] == context]
    dimensions = (MODEL.key, CONTEXT_LENGTH.key, MODE.key)
    place = CONTEXT_LENGTH.title(context)
    return [
        (", ".join(filter(None, (place, title))), parts_table(some, "share", _share_and_others))
        for title, some in split(rows, dimensions)
    ]


def _share_and_others(row: dict) -> str:
    return f"{percent(row['share'])} ({percent(row['other_share'])})"
