"""What the document of (m) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import counted, interval, percent, ratio, significant, with_spread
from profile_grid.results.results import COMPLETE
from profile_grid.study.dimensions import CONTEXT_LENGTH, PRECISION, keys_without
from profile_grid.study.stages import ENERGY, NOT_ASKED
from profile_grid.tables.apart import shown_dimensions, sorted_values
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.measured import Measured
from profile_grid.tables.ratios import beside_base
from profile_grid.tables.wording import PASSES, capital, extremes, listed

TOKEN, TOKEN_STD = "joules_per_token", "joules_per_token_std"
LED_BY = ("model", "context_length", "mode", "precision")
FIGURES = {  # column: heading, factor
    "joules_per_step": ("J per step", 1),
    "joules_per_token": ("mJ per token", 1e3),
    "power_w": ("power, W", 1),
    "idle_power_w": ("idle, W", 1),
    "tflops_per_watt": ("TFLOP/s per W", 1),
}


def sentences(measured: Measured) -> list[str]:
    """(m) By mode what a token takes; precision and context; power; what waiting takes; how sure the counter is."""
    rows, runs = measured.tables["energy_use"], measured.runs
    status = runs[ENERGY.status_column]
    lacking = int((~status.isin((COMPLETE, NOT_ASKED))).sum())
    if rows.empty:
        return [f"Not answered: the energy of no run was counted, and that of {lacking} was asked for."]
    found = [_of_mode(own, mode) for mode, own in rows.groupby("mode", sort=False)]
    found += [*_precisions(rows), *_contexts(rows), *_power(rows, measured), *_waiting(rows), _counter(rows)]
    have = "has" if lacking == 1 else "have"
    return [*found, f"Of {counted(len(rows) + lacking, 'run')} {lacking} {have} none."] if lacking else found


def millijoules(joules: float) -> str:
    """An energy in mJ."""
    return f"{significant(1e3 * joules)} mJ"


def _of_mode(rows: pd.DataFrame, mode: str) -> str:
    return f"{capital(PASSES[mode])} takes {extremes(rows, TOKEN, lambda row: millijoules(row[TOKEN]))} per token."


def _precisions(rows: pd.DataFrame) -> list[str]:
    """For each precision the energy of a token beside that in the default one."""
    both = beside_base(rows, PRECISION, TOKEN, TOKEN_STD)
    both = both.assign(times=1 / both["speed_up"])
    told = [
        f"{PRECISION.words(value)} {extremes(own.assign(precision=PRECISION.default), 'times', _times)}"
        for value, own in ((value, both[both["precision"] == value]) for value in sorted_values(both, PRECISION.key))
    ]
    return [f"Beside {PRECISION.default} a token takes {listed(told)} of the energy."] if told else []


def _contexts(rows: pd.DataFrame) -> list[str]:
    """The energy of a token at the longest context beside that at the shortest, where runs differ in that alone."""
    place, ends = keys_without(CONTEXT_LENGTH.key), []
    for _, own in rows.groupby(place, sort=False):
        own = own.sort_values(CONTEXT_LENGTH.key)
        if len(own) > 1:
            shortest, longest = own.iloc[0], own.iloc[-1]
            ends.append(
                longest.to_dict() | {"least": shortest["context_length"], "times": longest[TOKEN] / shortest[TOKEN]}
            )
    if not ends:
        return []

    def told(row: pd.Series) -> str:
        return f"{ratio(row['times'])} of that at context {row['least']}"

    return [f"At the longest context a token takes {extremes(pd.DataFrame(ends), 'times', told)}."]


def _power(rows: pd.DataFrame, measured: Measured) -> list[str]:
    power, idle = (interval(rows[name], _watts) for name in ("power_w", "idle_power_w"))
    efficiency = rows["tflops_per_watt"].dropna()
    done = f" and does {interval(efficiency, significant)} TFLOP/s per watt" if len(efficiency) else ""
    device = measured.words.device
    return [f"While the model steps the {device} draws {power}{done}; while nothing runs it draws {idle}."]


def _waiting(rows: pd.DataFrame) -> list[str]:
    """What idle power takes while the GPU waits for the host, where the capture is launch-bound; else the most."""
    if rows["waiting_share"].isna().all():
        return []
    bound = rows[rows["launch_bound"]]
    if bound.empty:
        waited = interval(rows["waiting_energy_share"], percent)
        return [f"No capture is launch-bound; while the GPU waits, idle power takes {waited} of a step's energy."]
    text = extremes(bound, "waiting_energy_share", lambda row: percent(row["waiting_energy_share"]))
    waits = interval(bound["waiting_share"], percent)
    return [
        f"Where the capture is launch-bound, the GPU waits {waits} of a step without a profiler, and idle power alone"
        f" takes {text} of the step's energy in that time."
    ]


def _counter(rows: pd.DataFrame) -> str:
    names, ticks = listed([escaped(name) for name in rows["counter"].unique()]), interval(rows["tick_ms"], significant)
    scatter = interval((rows["joules_per_step_std"] / rows["joules_per_step"]).dropna(), percent)
    most = percent(rows["tick_share"].max())
    return (
        f"The counter ({names}) ticks every {ticks} ms, at most {most} of a window; the windows scatter by {scatter}."
    )


def _times(row: pd.Series) -> str:
    return ratio(row["times"], row["speed_up_std"] / row["speed_up"] ** 2)


def _watts(watts: float) -> str:
    return f"{significant(watts)} W"


def energy_table(measured: Measured) -> MarkdownTable:
    """(m) One line per run: energy of a step and a token, power, and what idle power takes while the GPU waits."""
    rows = measured.tables["energy_use"]
    shown = shown_dimensions(rows, LED_BY)
    shares = {"waits": "waiting_share", "energy while it waits": "waiting_energy_share"}
    lines = tuple(
        (
            *leading_cells(row, shown),
            *(with_spread(times * row[name], times * row[f"{name}_std"]) for name, (_, times) in FIGURES.items()),
            *(percent(row[name]) for name in shares.values()),
        )
        for row in rows.to_dict("records")
    )
    headings = (*(heading for heading, _ in FIGURES.values()), *shares)
    return MarkdownTable((*headings_of(shown), *headings), lines, first_right=len(shown))
