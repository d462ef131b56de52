"""What the document of (d) says: sentences and tables."""

import pandas as pd

from kernel_tables.markdown import MarkdownTable, code, escaped
from profile_grid.quantities import ABSENT, interval, percent, points, significant
from profile_grid.study.dimensions import LEADING, MODE, keys_without
from profile_grid.tables.cells import Part, families_by_share, rows_table, run_table, small_families_merged
from profile_grid.tables.classes import MATMUL, NON_TRIVIAL_SHARE, family, family_shares, heading
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import ALL_PHASES, BACKWARD, FORWARD, MAIN_PHASES, RECOMPUTATION
from profile_grid.tables.per_pass import largest_by_run
from profile_grid.tables.pivoting import pivoted, pivoted_texts
from profile_grid.tables.wording import PASSES, TRAINING, Claim, leaders, listed, no_kernels_sentence, of_all

SAME_SHARE = 0.005
MAX_PARTS, MAX_PHASES = 7, 3
VISIBLE_SHARE = 0.0005  # of the step: a phase with less in every row has no column


def sentences(measured: Measured) -> list[Claim]:
    """(d) How the shares of kernel classes change from inference to training; shares of phases; the longest part."""
    if not measured.has_kernels:
        return [no_kernels_sentence(measured)]
    change = _shown_change(measured)
    is_matmul = change["family"] == MATMUL
    lead = [_change(change[is_matmul], measured)] if is_matmul.any() else _matmul_alone(measured)
    return [*lead, *_other_classes(change[~is_matmul]), *_phases(measured), *_parts(measured)]


def _matmul_alone(measured: Measured) -> list[Claim]:
    """The share of matrix multiplies by mode, and that no configuration was captured in both inference and training."""
    texts = [
        f"{interval(rows['share'], percent)} of the {measured.words.time} of {PASSES[mode]}"
        for mode, rows in _matmul_shares(measured).groupby("mode", sort=False)
    ]
    claims = [Claim("Matrix multiplies take {shares}.", shares=listed(texts))] if texts else []
    lacking = "Inference and training cannot be compared: no configuration has a complete capture of both."
    return [*claims, Claim(lacking, "missing")]


def _matmul_shares(measured: Measured) -> pd.DataFrame:
    """The share of matrix multiplies in the step's GPU time, by run."""
    classes = measured.tables["class_shares"]
    shares = family_shares(classes[classes["phase"] == ALL_PHASES])
    return shares[shares["family"] == MATMUL]


def _change(change: pd.DataFrame, measured: Measured) -> Claim:
    """In how many runs training spends a smaller or larger share on matrix multiplies, and by how many points."""
    texts, training = [], TRAINING[measured.training_mode]
    for word, rows in (("smaller", change["change"] <= -SAME_SHARE), ("larger", change["change"] >= SAME_SHARE)):
        if rows.any():
            amount = interval(change.loc[rows, "change"].abs(), _amount)
            count = str(int(rows.sum())) if texts else of_all(int(rows.sum()), len(change), "run")
            share = word if texts else f"a {word} share than in inference"
            texts.append(f"{share} in {count} ({amount} points)")
    verdict = ", ".join(texts) or f"the same share as in inference within {_amount(SAME_SHARE)} points"
    same = int((change["change"].abs() < SAME_SHARE).sum())
    if texts and same:
        verdict += f", similar in {same}"
    median = f"; median change {points(change['change'].median())}" if len(change) > 2 and len(texts) < 2 else ""
    return Claim(
        "In {training}, matrix multiplies take {verdict}{median}.",
        "counted", training=training, verdict=verdict, median=median,
    )  # fmt: skip


def _amount(difference: float) -> str:
    """An amount of percentage points without a sign."""
    return points(abs(difference)).lstrip("+")


def _other_classes(change: pd.DataFrame) -> list[Claim]:
    """The classes whose share is larger in training in every run, and those whose share is smaller; not if the median
    change is below SAME_SHARE."""
    texts: dict[str, list[str]] = {"raises": [], "lowers": []}
    for name, differences in change.groupby("family", sort=False)["change"]:
        if differences.abs().median() >= SAME_SHARE and ((differences > 0).all() or (differences < 0).all()):
            verb = "raises" if differences.iloc[0] > 0 else "lowers"
            texts[verb].append(f"{escaped(name)} ({interval(differences, points)} points)")
    shares = [
        f"{verb} the share of the class{'es' if len(classes) > 1 else ''} {listed(classes)}"
        for verb, classes in texts.items()
        if classes
    ]
    text = "In every run, training {shares}."
    return [Claim(text, shares=" and ".join(shares))] if shares else []


def _phases(measured: Measured) -> list[Claim]:
    """The shares of the longest phases in the training step; the table has all."""
    if measured.training_mode is None:
        return []
    shares = phase_shares(measured)
    longest = shares.groupby("phase")["of_step"].max().nlargest(MAX_PHASES)
    texts = [
        f"{escaped(phase)} {interval(rows['of_step'], percent)}"
        for phase, rows in shares.groupby("phase", sort=False)
        if longest.get(phase, 0.0) >= NON_TRIVIAL_SHARE
    ]
    text, time = "Shares of the {time} of {training}: {phases}.", measured.words.time
    return [Claim(text, time=time, training=TRAINING[measured.training_mode], phases=listed(texts))] if texts else []


def _parts(measured: Measured) -> list[Claim]:
    """The part of the model with the longest backward pass, if the captures distinguish parts."""
    parts = measured.tables["training_parts"]
    backward = parts[(parts["mode"] == measured.training_mode) & (parts["pass"] == BACKWARD)]
    longest = largest_by_run(backward, "gpu_time_ms")
    if longest.empty:
        return []
    share, longest_parts = interval(longest["share"], percent), leaders([code(part) for part in longest["part"]])
    subject = "Without recomputation, the" if (parts["pass"] == RECOMPUTATION).any() else "The"
    text = "{again} longest part of the backward pass takes {share} of it: {most}."
    return [Claim(text, again=subject, most=longest_parts, share=share)]


def tables(measured: Measured) -> list[Part]:
    """(d) The share of every class in inference and in training; of each phase in training; times of the longest
    parts."""
    words = measured.words
    change = _change_table(measured)
    recomputes = (measured.tables["training_parts"]["pass"] == RECOMPUTATION).any()
    exception = ", without recomputation" if recomputes else ""
    return [
        (f"Share of {words.time} by class in %, inference → training (gemm: matrix multiplies, with the change in"
         " percentage points)",
         change),
        (f"Share of {words.time} that matrix multiplies take", None if change else _matmul_table(measured)),
        (f"Each phase's share of the {words.time} of a training step (in brackets: the share of matrix multiplies in"
         " the phase)",
         _phase_table(measured)),
        (f"Forward → backward {words.time} of the longest parts of the model (all: the table"
         f" `training_parts`){exception}; a backward {words.kernel} belongs to the part whose gradients it computes",
         _parts_table(measured)),
    ]  # fmt: skip


def _shown_change(measured: Measured) -> pd.DataFrame:
    """The shares of the classes that have a column of their own, and of the small ones together."""
    return small_families_merged(training_change(measured), ["inference", "training", "change"], keys_without(MODE.key))


def _change_table(measured: Measured) -> MarkdownTable | None:
    """(d) The share of every class in inference and in training, matrix multiplies first; None if no configuration has
    both."""
    keys, change = keys_without(MODE.key), _shown_change(measured)
    if change.empty:
        return None
    wide = pivoted_texts(change, keys, "family", _change_cell)
    families = families_by_share(change.assign(share=change[["inference", "training"]].max(axis=1)))
    cells = {}
    for run in measured.runs[measured.runs["mode"] == measured.training_mode].to_dict("records"):
        place = tuple(run[key] for key in keys)
        if place in wide.index:
            cells[run["run"]] = tuple(wide.loc[place, families])
    return run_table(measured, tuple(f"{heading(name)}, %" for name in families), cells, measured.training_mode)


def _matmul_table(measured: Measured) -> MarkdownTable:
    """(d) The share of matrix multiplies in each run."""
    columns = [("matrix multiplies", lambda row: percent(row["share"]))]
    return rows_table(_matmul_shares(measured), LEADING_KEYS, columns)


def _phase_table(measured: Measured) -> MarkdownTable | None:
    """(d) The share of each phase in the training step, and of matrix multiplies in it; None without a captured
    training run."""
    shares = phase_shares(measured)
    if shares.empty:
        return None
    largest = shares.groupby("phase")["of_step"].max()
    phases = [phase for phase in dict.fromkeys(shares["phase"]) if largest[phase] >= VISIBLE_SHARE]
    texts = pivoted_texts(shares, ["run"], "phase", lambda row: f"{percent(row['of_step'])} ({percent(row['matmul'])})")
    cells = {run: tuple(texts.loc[run, phases]) for run in texts.index}
    return run_table(measured, tuple(escaped(phase) for phase in phases), cells, measured.training_mode)


def _parts_table(measured: Measured) -> MarkdownTable | None:
    """(d) Forward and backward times of the longest parts; None if no capture distinguishes backward parts."""
    rows = measured.tables["training_parts"]
    rows = rows[(rows["mode"] == measured.training_mode) & rows["pass"].isin((FORWARD, BACKWARD))]
    if rows.empty:
        return None
    longest_parts = rows.groupby("part")["share"].max().sort_values(ascending=False).index[:MAX_PARTS]
    parts = [part for part in dict.fromkeys(rows["part"]) if part in longest_parts]
    times = pivoted_texts(rows, ["run", "part"], "pass", lambda row: significant(row["gpu_time_ms"]))
    texts = times.reindex(columns=[FORWARD, BACKWARD], fill_value=ABSENT).agg(" → ".join, axis=1)
    cells = {run: tuple(texts.get((run, part), ABSENT) for part in parts) for run in dict.fromkeys(rows["run"])}
    return run_table(measured, tuple(f"{escaped(part)}, ms" for part in parts), cells, measured.training_mode)


def _change_cell(row: dict) -> str:
    """The shares in percent; of matrix multiplies also their change."""
    before, after = row["inference"], row["training"]
    change = f" ({points(after - before)})" if row["family"] == MATMUL else ""
    return f"{100 * before:.1f} → {100 * after:.1f}{change}"


def training_change(measured: Measured) -> pd.DataFrame:
    """Per configuration (all dimensions but the mode) and family: its share in inference, in training, and the change,
    as fractions."""
    keys = keys_without(MODE.key)
    columns = [*keys, "family", "inference", "training", "change"]
    shares = measured.tables["class_shares"]
    step_shares = family_shares(shares[shares["phase"] == ALL_PHASES])
    if measured.training_mode is None or measured.inference_mode != FORWARD or step_shares.empty:
        return pd.DataFrame(columns=columns)
    wide = pivoted(step_shares, [*keys, "family"], "mode", ["share"])["share"]
    if not {measured.inference_mode, measured.training_mode} <= set(wide.columns):
        return pd.DataFrame(columns=columns)
    both = wide.rename(columns={measured.inference_mode: "inference", measured.training_mode: "training"}).reset_index()
    both = both.dropna(subset=["inference", "training"])
    return both.assign(change=both["training"] - both["inference"])[columns]


def phase_shares(measured: Measured) -> pd.DataFrame:
    """Per run of the training mode and phase: its share of the step (`of_step`), and the share of matrix multiplies in
    it (`matmul`)."""
    rows = measured.mode("class_shares", measured.training_mode or "")
    rows = rows[rows["phase"] != ALL_PHASES]
    rows = rows.assign(matmul=rows["share"].where(rows["class"].map(family) == MATMUL, 0.0))
    table = rows.groupby([*LEADING, "phase"], sort=False)[["share_of_step", "matmul"]].sum().reset_index()
    order = {phase: position for position, phase in enumerate(MAIN_PHASES)}
    table = table.rename(columns={"share_of_step": "of_step"})
    return table.sort_values("phase", key=lambda phases: phases.map(order).fillna(len(order)), kind="stable")
