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

MIN_CHANGE = 0.005  # two shares that differ by less are similar
MAX_PARTS = 7  # parts with a column
MAX_PHASES = 3  # in the sentence on phases
MIN_PHASE_SHARE = 0.0005  # of the step: a phase with less in every row has no column


def sentences(measured: Measured) -> list[Claim]:
    """(d) How the shares of kernel classes change from inference to training; shares of phases; the longest part."""
    if not measured.has_kernels:
        return [no_kernels_sentence(measured)]
    shares = _shown_change(measured)
    is_matmul = shares["family"] == MATMUL
    lead = [_matmul_change(shares.loc[is_matmul, "change"], measured)] if is_matmul.any() else _matmul_alone(measured)
    return [*lead, *_other_classes(shares[~is_matmul]), *_longest_phases(measured), *_longest_part(measured)]


def _matmul_alone(measured: Measured) -> list[Claim]:
    """The share of matrix multiplies by mode; then that no configuration was captured in inference and in training."""
    texts = [
        f"{interval(rows['share'], percent)} of the {measured.words.time} of {PASSES[mode]}"
        for mode, rows in _matmul_shares(measured).groupby("mode", sort=False)
    ]
    lacking = "Inference and training cannot be compared: no configuration has a complete capture of both."
    claims = [Claim("Matrix multiplies take {shares}.", shares=listed(texts))] if texts else []
    return [*claims, Claim(lacking, "missing")]


def _matmul_shares(measured: Measured) -> pd.DataFrame:
    """The share of matrix multiplies in the step's GPU time, by run."""
    classes = measured.tables["class_shares"]
    shares = family_shares(classes[classes["phase"] == ALL_PHASES])
    return shares[shares["family"] == MATMUL]


def _matmul_change(changes: pd.Series, measured: Measured) -> Claim:
    """In how many runs training spends a smaller or larger share on matrix multiplies, and by how many points."""
    smaller, larger = changes[changes <= -MIN_CHANGE], changes[changes >= MIN_CHANGE]
    similar = len(changes) - len(smaller) - len(larger)
    verdicts = []
    for word, amounts in (("smaller", smaller.abs()), ("larger", larger)):
        if len(amounts):
            runs = f"{len(amounts)}" if verdicts else of_all(len(amounts), len(changes), "run")
            share = word if verdicts else f"a {word} share than in inference"
            verdicts.append(f"{share} in {runs} ({interval(amounts, _unsigned_points)} points)")
    median = f"; median change {points(changes.median())} points" if len(changes) > 2 and len(verdicts) < 2 else ""
    if not verdicts:
        verdicts = [f"the same share as in inference within {_unsigned_points(MIN_CHANGE)} points"]
    elif similar:
        verdicts.append(f"similar in {similar}")
    return Claim(
        "In {training}, matrix multiplies take {verdict}{median}.",
        "counted", training=TRAINING[measured.training_mode], verdict=", ".join(verdicts), median=median,
    )  # fmt: skip


def _unsigned_points(difference: float) -> str:
    """A positive difference of two shares in percentage points."""
    return points(difference).lstrip("+")


def _other_classes(shares: pd.DataFrame) -> list[Claim]:
    """The classes whose share is larger in training in every run, and those whose share is smaller in every run; not
    those whose median change is below MIN_CHANGE."""
    raised, lowered = [], []
    for name, changes in shares.groupby("family", sort=False)["change"]:
        text = f"{escaped(name)} ({interval(changes, points)} points)"
        if changes.abs().median() >= MIN_CHANGE and (changes > 0).all():
            raised.append(text)
        elif changes.abs().median() >= MIN_CHANGE and (changes < 0).all():
            lowered.append(text)
    texts = [
        f"{verb} the share of the class{'es' if len(classes) > 1 else ''} {listed(classes)}"
        for verb, classes in (("raises", raised), ("lowers", lowered))
        if classes
    ]
    return [Claim("In every run, training {shares}.", shares=" and ".join(texts))] if texts else []


def _longest_phases(measured: Measured) -> list[Claim]:
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


def _longest_part(measured: Measured) -> list[Claim]:
    """The part of the model with the longest backward pass, if the captures distinguish parts."""
    parts = measured.tables["training_parts"]
    backward = parts[(parts["mode"] == measured.training_mode) & (parts["pass"] == BACKWARD)]
    longest_parts = largest_by_run(backward, "gpu_time_ms")
    if longest_parts.empty:
        return []
    names, share = leaders([code(part) for part in longest_parts["part"]]), interval(longest_parts["share"], percent)
    article = "Without recomputation, the" if (parts["pass"] == RECOMPUTATION).any() else "The"
    text = "{again} longest part of the backward pass takes {share} of it: {most}."
    return [Claim(text, again=article, most=names, share=share)]


def tables(measured: Measured) -> list[Part]:
    """(d) The share of every class in inference and training, of each phase in training; times of the longest parts."""
    words, change_table = measured.words, _change_table(measured)
    recomputes = (measured.tables["training_parts"]["pass"] == RECOMPUTATION).any()
    without = ", without recomputation" if recomputes else ""
    return [
        (f"Share of {words.time} by class in %, inference → training (gemm: matrix multiplies, with the change in"
         " percentage points)",
         change_table),
        (f"Share of {words.time} that matrix multiplies take",
         _matmul_table(measured) if change_table is None else None),
        (f"Each phase's share of the {words.time} of a training step (in brackets: the share of matrix multiplies in"
         " the phase)",
         _phase_table(measured)),
        (f"Forward → backward {words.time} of the longest parts of the model (all: the table"
         f" `training_parts`){without}; a backward {words.kernel} belongs to the part whose gradients it computes",
         _parts_table(measured)),
    ]  # fmt: skip


def _shown_change(measured: Measured) -> pd.DataFrame:
    """The rows of `training_change`, with all small families of classes as one family."""
    return small_families_merged(training_change(measured), ["inference", "training", "change"], keys_without(MODE.key))


def _change_table(measured: Measured) -> MarkdownTable | None:
    """(d) The share of every class in inference and in training, matrix multiplies first; None if no configuration has
    both."""
    keys, shares = keys_without(MODE.key), _shown_change(measured)
    if shares.empty:
        return None
    wide = pivoted_texts(shares, keys, "family", _change_cell)
    families = families_by_share(shares.assign(share=shares[["inference", "training"]].max(axis=1)))
    cells = {}
    for run in measured.runs[measured.runs["mode"] == measured.training_mode].to_dict("records"):
        configuration = tuple(run[key] for key in keys)
        if configuration in wide.index:
            cells[run["run"]] = tuple(wide.loc[configuration, families])
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
    phases = [phase for phase in dict.fromkeys(shares["phase"]) if largest[phase] >= MIN_PHASE_SHARE]
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
    """The shares of a family in inference and training in percent; for matrix multiplies, also the change."""
    inference, training = row["inference"], row["training"]
    change = f" ({points(training - inference)})" if row["family"] == MATMUL else ""
    return f"{100 * inference:.1f} → {100 * training:.1f}{change}"


def training_change(measured: Measured) -> pd.DataFrame:
    """Per configuration (all dimensions but the mode) and family: its share in inference, in training, and the change,
    as fractions."""
    keys = keys_without(MODE.key)
    columns = [*keys, "family", "inference", "training", "change"]
    shares = measured.tables["class_shares"]
    step_shares = family_shares(shares[shares["phase"] == ALL_PHASES])
    if not {FORWARD, measured.training_mode} <= set(step_shares["mode"]):
        return pd.DataFrame(columns=columns)
    wide = pivoted(step_shares, [*keys, "family"], "mode", ["share"])["share"]
    both = wide.rename(columns={FORWARD: "inference", measured.training_mode: "training"}).reset_index()
    both = both.dropna(subset=["inference", "training"])
    return both.assign(change=both["training"] - both["inference"])[columns]


def phase_shares(measured: Measured) -> pd.DataFrame:
    """Per run of the training mode and phase: its share of the step (`of_step`), and the share of matrix multiplies in
    it (`matmul`)."""
    rows = measured.mode("class_shares", measured.training_mode or "")  # without training, no rows
    rows = rows[rows["phase"] != ALL_PHASES]
    rows = rows.assign(matmul=rows["share"].where(rows["class"].map(family) == MATMUL, 0.0))
    table = rows.groupby([*LEADING, "phase"], sort=False)[["share_of_step", "matmul"]].sum().reset_index()
    order = {phase: position for position, phase in enumerate(MAIN_PHASES)}
    table = table.rename(columns={"share_of_step": "of_step"})
    return table.sort_values("phase", key=lambda phases: phases.map(order).fillna(len(order)), kind="stable")
