"""What the document of (c) says: sentences and tables."""

from collections import Counter

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import interval, percent
from profile_grid.study.dimensions import CONTEXT_LENGTH, LEADING, MODEL
from profile_grid.tables import model_parts, names, pivoting, wording
from profile_grid.tables.cells import Part, families_by_share, parts_table, run_table, small_families_merged
from profile_grid.tables.classes import MATMUL, NON_TRIVIAL_SHARE, family, family_shares, heading
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.measured import Measured
from profile_grid.tables.per_pass import largest_by_run

MAX_NAMED = 3


def sentences(measured: Measured) -> list[wording.Claim]:
    """(c) What the forward pass spends outside matrix multiplies: classes, parts of the model, kernels."""
    if not measured.has_kernels:
        return [wording.no_kernels_sentence(measured)]
    others = _shares_of_others(measured)
    if others.empty:
        return [wording.NO_FORWARD_PASS]
    parts, classes = _longest_parts(measured), measured.inference("forward_classes")
    families = family_shares(classes)
    top = wording.first_ranked(measured.inference("top_kernels"), names.FORWARD_OTHERS)
    kernels = wording.leaders([measured.label(kernel) for kernel in top["kernel"]])
    claims = [_lead(others, parts), *wording.mode_note(measured), *_families(families[families["family"] != MATMUL])]
    claims += _parts(parts, measured)
    if kernels:
        text = "The {kernel} with the most time besides matrix multiplies is {kernels}."
        claims.append(wording.Claim(text, "counted", kernel=measured.words.kernel, kernels=kernels))
    return [*claims, *wording.fused_sentence(measured, classes)]


def _shares_of_others(measured: Measured) -> pd.DataFrame:
    """The share of the forward pass's GPU time outside matrix multiplies, per run of the inference mode."""
    classes = measured.inference("forward_classes")
    is_other = classes["class"].map(family) != MATMUL
    shares = classes.assign(share=classes["share"].where(is_other, 0.0)).groupby(LEADING, sort=False)["share"].sum()
    return shares.reset_index()


def _lead(others: pd.DataFrame, parts: pd.DataFrame) -> wording.Claim:
    longest_part = f"; its longest part {_commonest(parts['part'])}" if len(parts) else ""
    median = wording.median_note(others["share"], percent)
    return wording.Claim(
        "Everything but matrix multiplies takes {share} of the forward pass{median}{most}.",
        "counted", share=interval(others["share"], percent), median=median, most=longest_part,
    )  # fmt: skip


def _commonest(parts: pd.Series) -> str:
    """The commonest part: "is `computing softmax` in 14 of 20 runs"; "differs from run to run" if two are as common."""
    (part, runs), *others = Counter(parts).most_common(2)
    if others and others[0][1] == runs:
        return "differs from run to run"
    return f"is {code(part)}" + (f" in {wording.of_all(runs, len(parts), 'run')}" if len(parts) > 1 else "")


def _families(families: pd.DataFrame) -> list[wording.Claim]:
    """The largest other classes whose share is not trivial in some run, or that there is none; the table has all."""
    largest = families.groupby("family")["share"].max().sort_values(ascending=False)
    texts = [
        f"{escaped(name)} {interval(families.loc[families['family'] == name, 'share'], percent)}"
        for name in largest[largest >= NON_TRIVIAL_SHARE].index[:MAX_NAMED]
    ]
    above = percent(NON_TRIVIAL_SHARE)
    if not texts:
        return [wording.Claim("No other class reaches {above} in any run.", above=above)]
    return [wording.Claim("Shares of the forward pass by class: {classes}.", classes=wording.listed(texts))]


def _longest_parts(measured: Measured) -> pd.DataFrame:
    """By run the part of the model with the most time outside matrix multiplies, if the capture distinguishes parts."""
    parts = measured.inference("forward_parts")
    return largest_by_run(parts[(parts["part"] != names.NO_RANGE) & (parts["other_time_ms"] > 0)], "other_time_ms")


def _parts(longest: pd.DataFrame, measured: Measured) -> list[wording.Claim]:
    """The share of the longest part in what is not matrix multiplies, or that parts are not known."""
    if longest.empty:
        return [
            wording.Claim(
                "Which part of the model these {kernels} serve is not known: the captures have no range inside"
                " `forward`. Name functions under `program.annotate` in `config.yaml`.",
                "missing", kernels=measured.words.kernels,
            )
        ]  # fmt: skip
    text = "The longest part takes {share} of the time besides matrix multiplies{parts}."
    parts = f": {wording.leaders([code(part) for part in longest['part']])}" if longest["part"].nunique() > 1 else ""
    return [wording.Claim(text, "counted", parts=parts, share=interval(longest["share_of_others"], percent))]


def tables(measured: Measured) -> list[Part]:
    """(c) Shares of the forward pass by class; what takes the most time besides matrix multiplies; shares by part."""
    if not measured.has_kernels:
        return []
    contexts = measured.inference("forward_parts")[CONTEXT_LENGTH.key].nunique()
    other = " (other contexts: the table `forward_parts`)" if contexts > 1 else ""
    parts = [
        (f"Share by part of the model at {title}, in brackets the share without its matrix multiplies{other}", table)
        for title, table in _parts_tables(measured)
    ]
    classes = f"Share of the forward pass's {measured.words.time} by class (gemm: matrix multiplies)"
    others = "What takes the most time besides matrix multiplies (shares of the entire forward pass)"
    return [(classes, _class_table(measured)), (others, _others_table(measured)), *parts]


def _class_table(measured: Measured) -> MarkdownTable:
    """(c) Shares of the forward pass's GPU time by class: matrix multiplies, then the longest; small ones together."""
    shares = family_shares(measured.inference("forward_classes"))
    shares = small_families_merged(shares, ["share"], LEADING)
    families = families_by_share(shares)
    wide = pivoting.pivoted_texts(shares, ["run"], "family", lambda row: percent(row["share"]))
    cells = {run: tuple(wide.loc[run, families]) for run in wide.index}
    return run_table(measured, tuple(map(heading, families)), cells)


def _others_table(measured: Measured) -> MarkdownTable:
    """(c) The parts of the model and the kernels with the most time outside matrix multiplies, the longest first."""
    parts, top = model_parts.rows_in_parts(measured.inference("forward_parts")), measured.inference("top_kernels")
    top = top[top["scope"] == names.FORWARD_OTHERS]
    cells = {}
    for run in measured.runs["run"]:
        largest = parts[(parts["run"] == run) & (parts["other_time_ms"] > 0)].nlargest(MAX_NAMED, "other_time_ms")
        top_rows = top[top["run"] == run].head(MAX_NAMED)
        if not top_rows.empty:
            texts = [f"{escaped(row.part)} {percent(row.other_share)}" for row in largest.itertuples()]
            kernels = [f"{measured.label(row.kernel)} {percent(row.share)}" for row in top_rows.itertuples()]
            cells[run] = (*([] if parts.empty else [", ".join(texts)]), ", ".join(kernels))
    headings = (*([] if parts.empty else ["parts of the model"]), measured.words.kernels)
    return run_table(measured, headings, cells, left_aligned=len(headings))


def _parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(c) (title, table) for each combination of further dimensions that vary: share of the forward pass by part, a
    column per model, at the longest of the contexts that the most models have. Empty without ranges of parts."""
    parts = model_parts.rows_in_parts(measured.inference("forward_parts"))
    if parts.empty:
        return []
    models_at = parts.groupby(CONTEXT_LENGTH.key)[MODEL.key].nunique()
    context = max(models_at[models_at == models_at.max()].index)
    rows = parts[parts[CONTEXT_LENGTH.key] == context]
    return [
        (", ".join(filter(None, (CONTEXT_LENGTH.title(context), title))), parts_table(some, "share", _share_and_others))
        for title, some in pivoting.split(rows, LEADING_KEYS)
    ]


def _share_and_others(row: dict) -> str:
    return f"{percent(row['share'])} ({percent(row['other_share'])})"
