"""What the document of (m) says: sentences and tables."""

import pandas as pd

from kernel_tables.markdown import escaped
from profile_grid.quantities import counted, interval, percent, significant, with_spread
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import CONTEXT_LENGTH, FULLEST_FIRST, PRECISION, keys_without
from profile_grid.study.stages import ENERGY, NOT_ASKED
from profile_grid.tables import cells, pivoting, ratios
from profile_grid.tables.gains import LEADING_KEYS
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import PASSES, Claim, capital, config_in_words, listed, of_all, run_in_words

TOKEN_J, TOKEN_STD_J = "joules_per_token", "joules_per_token_std"
SHOWN_COLUMNS = (  # column, heading, factor from its unit to that of the heading
    ("joules_per_step", "J per step", 1),
    ("joules_per_token", "mJ per token", 1e3),
    ("power_w", "power, W", 1),
    ("idle_power_w", "idle, W", 1),
    ("tflops_per_watt", "TFLOP/s per W", 1),
)


def sentences(measured: Measured) -> list[Claim]:
    """(m) The energy of a token; then energy while waiting, by mode and context, power, and the counter's accuracy."""
    rows, runs = measured.tables["energy_use"], measured.runs
    missing_runs = int((~runs[ENERGY.status_column].isin((COMPLETE, NOT_ASKED))).sum())
    if rows.empty:
        text = "Not answered: the energy of no run was counted; that of {missing_runs} was requested."
        return [Claim(text, "missing", missing_runs=missing_runs)]
    pairs = ratios.with_base(rows, PRECISION, TOKEN_J, TOKEN_STD_J)
    pairs["share_of_base"] = pairs[TOKEN_J] / pairs[f"base_{TOKEN_J}"]
    lead = _saving(pairs) if len(pairs) else _highest_energy(rows)
    token_energy = [_token_energy(rows, pairs), *_context_shares(rows)]
    return [lead, *_idle_energy(rows), *token_energy, _power(rows, measured), _counter_accuracy(rows)]


def millijoules(joules: float) -> str:
    """An energy in mJ."""
    return f"{significant(1e3 * joules)} mJ"


def _saving(pairs: pd.DataFrame) -> Claim:
    """The largest saving of energy per token by a precision, in the mode with the most phases that has runs to compare.
    `pairs`: the runs in other precisions than the default, each with the run that differs only in that."""
    mode = next(mode for mode in FULLEST_FIRST if (pairs["mode"] == mode).any())
    row = pairs.loc[pairs.loc[pairs["mode"] == mode, "share_of_base"].idxmin()]
    configuration = config_in_words(row.to_dict() | {PRECISION.key: PRECISION.default})
    return Claim(
        "{in_precision}, a token takes {energy} in {step} of {place}, {share} of the {base} in {default}.",
        in_precision=capital(PRECISION.words(row[PRECISION.key])), energy=millijoules(row[TOKEN_J]),
        step=PASSES[row["mode"]], place=configuration, share=percent(row["share_of_base"]),
        base=millijoules(row[f"base_{TOKEN_J}"]), default=PRECISION.default,
    )  # fmt: skip


def _highest_energy(rows: pd.DataFrame) -> Claim:
    row = rows.loc[rows[TOKEN_J].idxmax()]
    median = f"; the median of {len(rows)} runs is {millijoules(rows[TOKEN_J].median())}" if len(rows) > 2 else ""
    text = "A token takes at most {most} ({run}){median}."
    return Claim(text, most=millijoules(row[TOKEN_J]), run=run_in_words(row), median=median)


def _token_energy(rows: pd.DataFrame, pairs: pd.DataFrame) -> Claim:
    """The energy of a token by mode; and by precision, as a share of the energy in the default one."""
    by_mode = rows.groupby("mode", sort=False)[TOKEN_J]
    texts = [f"{interval(energies, millijoules)} in {PASSES[mode]}" for mode, energies in by_mode]
    shares = pairs.groupby(PRECISION.key)["share_of_base"]
    shares_text = "".join(
        f"; {PRECISION.words(value)}, {interval(shares.get_group(value), percent)} of that in {PRECISION.default}"
        for value in pivoting.sorted_values(pairs, PRECISION.key)
    )
    return Claim("A token takes {texts}{shares}.", texts=listed(texts), shares=shares_text)


def _context_shares(rows: pd.DataFrame) -> list[Claim]:
    """The energy of a token at the longest context as a share of its energy at the shortest, all else equal."""
    by_length = rows.sort_values(CONTEXT_LENGTH.key).groupby(keys_without(CONTEXT_LENGTH.key))
    shortest, longest = (ends[by_length.size() > 1] for ends in (by_length.first(), by_length.last()))
    if shortest.empty:
        return []
    shares = interval(longest[TOKEN_J] / shortest[TOKEN_J], percent)
    lengths = zip(longest[CONTEXT_LENGTH.key], shortest[CONTEXT_LENGTH.key], strict=True)
    length_texts = dict.fromkeys(f"{long} instead of {short}" for long, short in lengths)
    text = "At a longer context, a token takes {shares} of its energy at the shortest ({lengths}; {number})."
    number = counted(len(shortest), "pair of runs", "pairs of runs")
    return [Claim(text, shares=shares, lengths=listed([*length_texts]), number=number)]


def _power(rows: pd.DataFrame, measured: Measured) -> Claim:
    power, idle = (interval(rows[name], lambda w: f"{significant(w)} W") for name in ("power_w", "idle_power_w"))
    efficiency = rows["tflops_per_watt"].dropna()
    work = f", at {interval(efficiency, significant)} TFLOP/s per watt" if len(efficiency) else ""
    text = "The {device} draws {power} during steps{work}, and {idle} when idle."
    return Claim(text, device=measured.words.device, power=power, work=work, idle=idle)


def _idle_energy(rows: pd.DataFrame) -> list[Claim]:
    """What idle power takes while the GPU waits for the host: in launch-bound runs or, if there are none, in all."""
    if rows["waiting_share"].isna().all():
        return []
    bound_runs = rows[rows["launch_bound"]]
    if bound_runs.empty:
        text = "Without a profiler, no run is launch-bound; power of the idle GPU takes {share} of a step's energy."
        return [Claim(text, "counted", share=interval(rows["waiting_energy_share"], percent))]
    highest = bound_runs.loc[bound_runs["waiting_energy_share"].idxmax()]
    return [
        Claim(
            "Without a profiler, {runs} {are} launch-bound: the GPU idles {waits} of a step. At idle power, this takes"
            " up to {share} of the step's energy ({run}).", "counted",
            runs=of_all(len(bound_runs), len(rows), "run"), are="is" if len(bound_runs) == 1 else "are",
            waits=interval(bound_runs["waiting_share"], percent), share=percent(highest["waiting_energy_share"]),
            run=run_in_words(highest),
        )
    ]  # fmt: skip


def _counter_accuracy(rows: pd.DataFrame) -> Claim:
    """How often the counter is updated, the error that follows for a window, and how much windows vary."""
    scatter = interval((rows["joules_per_step_std"] / rows["joules_per_step"]).dropna(), percent)
    return Claim(
        "The counter ({names}) is updated every {ticks} ms, so the energy of a window is accurate to {most};"
        " the standard deviation between windows is {scatter}.",
        names=listed([escaped(name) for name in rows["counter"].unique()]),
        ticks=interval(rows["tick_ms"], significant), most=percent(rows["tick_share"].max()), scatter=scatter,
    )  # fmt: skip


def tables(measured: Measured) -> list[cells.Part]:
    """(m) One line per run: energy of a step and a token, power, and energy of idle power while the GPU waits."""
    energies = [
        (heading, lambda row, name=name, factor=factor: with_spread(factor * row[name], factor * row[f"{name}_std"]))
        for name, heading, factor in SHOWN_COLUMNS
    ]
    shares = (
        ("GPU idle", lambda row: percent(row["waiting_share"])),
        ("energy while idle", lambda row: percent(row["waiting_energy_share"])),
    )
    text = "Energy by the counter of the device, without a profiler; ± is the standard deviation between windows"
    return [
        (text, cells.rows_table(measured.tables["energy_use"], (*LEADING_KEYS, PRECISION.key), (*energies, *shares)))
    ]
