"""What the document of (c) says: sentences and tables."""

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import interval, percent
from profile_grid.study.dimensions import CONTEXT_LENGTH, LEADING, MODEL
from profile_grid.tables import model_parts, names, pivoting, wording
from profile_grid.tables.cells import Part, families_by_share, parts_table, run_table, small_families_merged, titled
from profile_grid.tables.classes import MATMUL, NON_TRIVIAL_SHARE, family, family_shares, heading
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.measured import Measured
from profile_grid.tables.per_pass import largest_by_run

MAX_NAMED = 3  # classes in the sentence on them; parts, and also kernels, in a line of _others_table


def sentences(measured: Measured) -> list[wording.Claim]:
    """(c) What the forward pass spends outside matrix multiplies: classes, parts of the model, kernels."""
    if not measured.has_kernels:
        return [wording.no_kernels_sentence(measured)]
    classes = measured.inference("forward_classes")
    if classes.empty:
        return [wording.NO_FORWARD_PASS]
    longest_parts, families = _longest_parts(measured), family_shares(classes)
    fused = wording.fused_sentence(measured, classes)
    claims = [_lead(_other_shares(classes), longest_parts, has_fused=bool(fused)), *wording.mode_note(measured)]
    claims += [*_families(families[families["family"] != MATMUL]), *_longest_part(longest_parts, measured)]
    return [*claims, *_top_kernel(measured), *fused]


def _other_shares(classes: pd.DataFrame) -> pd.Series:
    """The share of the forward pass's GPU time outside matrix multiplies, by run."""
    is_other = classes["class"].map(family) != MATMUL
    return classes["share"].where(is_other, 0.0).groupby(classes["run"], sort=False).sum()


def _lead(other_shares: pd.Series, longest_parts: pd.DataFrame, *, has_fused: bool) -> wording.Claim:
    """The share of other kernels, and the part with the most time. Fused attention, which contains matrix multiplies,
    counts as other."""
    longest_part = f"; its longest part {_is_part(longest_parts['part'])}" if len(longest_parts) else ""
    median = wording.median_note(other_shares, percent)
    return wording.Claim(
        "Everything but {separate}matrix multiplies takes {share} of the forward pass{median}{most}.",
        "counted", share=interval(other_shares, percent), median=median, most=longest_part,
        separate="separate " if has_fused else "",
    )  # fmt: skip


def _is_part(parts: pd.Series) -> str:
    """A predicate with the commonest part: "is `computing softmax` in 14 of 20 runs"; "differs from run to run" if two
    parts are equally common."""
    run_counts = parts.value_counts()
    if len(run_counts) > 1 and run_counts.iloc[0] == run_counts.iloc[1]:
        return "differs from run to run"
    runs = f" in {wording.of_all(int(run_counts.iloc[0]), len(parts), 'run')}" if len(parts) > 1 else ""
    return f"is {code(run_counts.index[0])}{runs}"


def _families(families: pd.DataFrame) -> list[wording.Claim]:
    """The shares of the largest of these families of classes, if they are not trivial in some run; or that there is
    none. The table has all."""
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
    """By run, the part with the most time outside matrix multiplies, if the capture distinguishes parts."""
    parts = measured.inference("forward_parts")
    return largest_by_run(parts[(parts["part"] != names.NO_RANGE) & (parts["other_time_ms"] > 0)], "other_time_ms")


def _longest_part(longest_parts: pd.DataFrame, measured: Measured) -> list[wording.Claim]:
    """The share of the longest part in the time outside matrix multiplies, or that parts are not known."""
    if longest_parts.empty:
        return [
            wording.Claim(
                "Which part of the model these {kernels} serve is not known: the captures have no range inside"
                " `forward`. Name functions under `program.annotate` in `config.yaml`.",
                "missing", kernels=measured.words.kernels,
            )
        ]  # fmt: skip
    names_differ = longest_parts["part"].nunique() > 1
    parts = f": {wording.leaders([code(part) for part in longest_parts['part']])}" if names_differ else ""
    text = "The longest part takes {share} of the time besides matrix multiplies{parts}."
    share = interval(longest_parts["share_of_others"], percent)
    return [wording.Claim(text, "counted", parts=parts, share=share)]


def _top_kernel(measured: Measured) -> list[wording.Claim]:
    tops = wording.first_ranked(measured.inference("top_kernels"), names.FORWARD_OTHERS)
    kernels = wording.leaders([measured.label(kernel) for kernel in tops["kernel"]])
    text = "The {kernel} with the most time besides matrix multiplies is {kernels}."
    return [wording.Claim(text, "counted", kernel=measured.words.kernel, kernels=kernels)] if kernels else []


def tables(measured: Measured) -> list[Part]:
    """(c) Shares of the forward pass by class; what takes the most time besides matrix multiplies; shares by part."""
    if not measured.has_kernels:
        return []
    contexts = measured.inference("forward_parts")[CONTEXT_LENGTH.key].nunique()
    note = " (other contexts: the table `forward_parts`)" if contexts > 1 else ""
    return [
        (f"Share of the forward pass's {measured.words.time} by class (gemm: matrix multiplies)",
         _class_table(measured)),
        ("What takes the most time besides matrix multiplies (shares of the entire forward pass)",
         _others_table(measured)),
        *((f"Share by part of the model at {title}, in brackets the share without its matrix multiplies{note}", table)
          for title, table in _parts_tables(measured)),
    ]  # fmt: skip


def _class_table(measured: Measured) -> MarkdownTable:
    """(c) Shares of the forward pass's GPU time by family of classes: matrix multiplies, then the largest others; small
    families share a column."""
    shares = family_shares(measured.inference("forward_classes"))
    shares = small_families_merged(shares, ["share"], LEADING)
    families = families_by_share(shares)
    wide = pivoting.pivoted_texts(shares, ["run"], "family", lambda row: percent(row["share"]))
    cells = {run: tuple(wide.loc[run, families]) for run in wide.index}
    return run_table(measured, tuple(map(heading, families)), cells)


def _others_table(measured: Measured) -> MarkdownTable:
    """(c) The parts of the model and the kernels with the most time outside matrix multiplies, the longest first."""
    parts, kernels = model_parts.rows_in_parts(measured.inference("forward_parts")), measured.inference("top_kernels")
    other_parts = parts[parts["other_time_ms"] > 0]
    cells = {}
    for run, run_kernels in kernels[kernels["scope"] == names.FORWARD_OTHERS].groupby("run", sort=False):
        longest_parts = other_parts[other_parts["run"] == run].nlargest(MAX_NAMED, "other_time_ms")
        part_texts = [f"{escaped(row.part)} {percent(row.other_share)}" for row in longest_parts.itertuples()]
        longest_kernels = run_kernels.head(MAX_NAMED).itertuples()
        kernel_texts = [f"{measured.label(row.kernel)} {percent(row.share)}" for row in longest_kernels]
        cells[run] = (", ".join(part_texts), ", ".join(kernel_texts))
    headings = ("parts of the model", measured.words.kernels)
    if parts.empty:  # captures without ranges of parts
        headings, cells = headings[1:], {run: texts[1:] for run, texts in cells.items()}
    return run_table(measured, headings, cells, left_aligned=len(headings))


def _parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(c) Shares of the forward pass by part, a column per model, at the context that was captured with the most models
    (of several, the longest). One (title, table) for each combination of further dimensions that vary; no table without
    ranges of parts."""
    parts = model_parts.rows_in_parts(measured.inference("forward_parts"))
    if parts.empty:
        return []
    models_at = parts.groupby(CONTEXT_LENGTH.key)[MODEL.key].nunique()
    context = max(models_at[models_at == models_at.max()].index)
    tables = (
        (title, parts_table(rows, "share", _share_and_others))
        for title, rows in pivoting.split(parts[parts[CONTEXT_LENGTH.key] == context], LEADING_KEYS)
    )
    return titled(CONTEXT_LENGTH.title(context), tables)


def _share_and_others(row: dict) -> str:
    return f"{percent(row['share'])} ({percent(row['other_share'])})"
