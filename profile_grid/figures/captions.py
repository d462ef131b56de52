"""What each figure shows in a sentence or two, chosen by the data: under the figure, and read out in its place."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from profile_grid.figures import rows
from profile_grid.gpu_peaks import peaks_in_words
from profile_grid.quantities import interval, known, percent, significant
from profile_grid.tables.classes import MATMUL
from profile_grid.tables.scaling import fitted_power_law

Tables = dict[str, pd.DataFrame]


def caption(name: str, tables: Tables) -> str:
    """The caption of the figure of that name, of the machine with the most runs: plain text, names not escaped."""
    of_machine, machine, left_out = rows.of_one_machine(tables)
    return " ".join([CAPTIONS[name](of_machine), f"{machine}.", *left_out])


def _phase_times(tables: Tables) -> str:
    times = rows.phase_times(tables["runs"], tables["timings"], tables["phases"])
    parts = [
        f"{phase} {interval(own['mean_ms'], _ms)}"
        for phase, own in times.groupby("phase", sort=False)
        if own["mean_ms"].notna().any()
    ]
    measured = f"Without a profiler: {', '.join(parts)}." if parts else "No phase was timed without a profiler."
    return f"{measured} {_without_figures(rows.fullest_runs(tables['runs']))}".strip()


def _launch_bound(tables: Tables) -> str:
    busy = rows.busy_and_wall(tables["phases"])
    device = rows.words(tables["runs"]).device
    if busy.empty:
        return f"No capture holds kernels: how long the {device} was busy is not known."
    bound = busy[busy["busy_share"] < 0.5]
    most = f"The {device} is busy for {interval(busy['busy_share'], percent)} of a step's wall time"
    return f"{most}; for less than half of it in {len(bound)} of {len(busy)} runs."


def _top_kernels(tables: Tables) -> str:
    run = rows.largest_run(tables["runs"])
    top = rows.top_kernels(tables["kernels"], run, None, 3) if run else pd.DataFrame()
    if top.empty:
        return "No capture holds kernels."
    words = rows.words(tables["runs"])
    shares = f"{percent(top['share'].iloc[0])} of the {words.time}"
    return (
        f"Of {run}: the first {words.kernel} alone takes {shares}, the first {len(top)} {percent(top['share'].sum())}."
    )


def _class_shares(tables: Tables) -> str:
    shares = rows.class_shares(tables["runs"], tables["class_shares"])
    matmul = shares[shares["family"] == MATMUL]
    sides = (("inference", matmul["mode"] == "forward"), ("training", matmul["mode"] != "forward"))
    parts = [f"{interval(matmul[own]['share'], percent)} in {side}" for side, own in sides if own.any()]
    text = f"Matrix multiplies take {', '.join(parts)}." if parts else "No capture holds matrix multiplies."
    return f"{text} {_without_figures(tables['runs'])}".strip()


def _attention(tables: Tables) -> str:
    parts = rows.attention_parts(tables["attention"])
    softmax = parts[(parts["part"] == "computing softmax") & parts["runtime_to_matmuls"].notna()]
    if softmax.empty:
        return "No capture has kernels in the ranges of softmax and both matrix multiplies."
    runtime, flops = (interval(softmax[f"{what}_to_matmuls"], _factor) for what in ("runtime", "flops"))
    return (
        f"Softmax takes {runtime} times as long as both matrix multiplies of attention, for {flops} times their FLOPs."
    )


def _scaling(tables: Tables) -> str:
    times = rows.step_times(tables["runs"], tables["timings"])
    sentences = [
        f"{rows.MODE_NAMES[mode]}: exponent {interval(exponents, _two_digits)} of {what}"
        for mode, own in times.groupby("mode", sort=False)
        for what, x, by in (("parameters", "parameters", "context_length"), ("context", "context_length", "model"))
        if (exponents := _exponents(own, x, by))
    ]
    return f"Fitted to what was measured: {'; '.join(sentences)}." if sentences else "Too few sizes to fit a power law."


def _exponents(own: pd.DataFrame, x: str, by: str) -> list[float]:
    laws = [fitted_power_law(points[x], points["mean_ms"]) for _, points in own.groupby(by, sort=False)]
    return [law.exponent for law in laws if law]


def _roofline(tables: Tables) -> str:
    points = rows.roofline(tables["runs"], tables["ranges"])
    if points.empty:
        return "No run has both kernels by part of the model and FLOPs from its shapes."
    device, precision = points["device_name"].iloc[0], points["precision"].iloc[0]
    reached = f"The parts reach {interval(points['flop_per_s'] / 1e12, significant)} TFLOP/s."
    return f"{reached} {peaks_in_words(device if known(device) else None, precision)}"


def _without_figures(runs: pd.DataFrame) -> str:
    unhappy = len(rows.unhappy_runs(runs))
    return f"{unhappy} run(s) have no figures and are marked." if unhappy else ""


def _ms(value: float) -> str:
    return f"{significant(value)} ms"


def _factor(value: float) -> str:
    return significant(value, 2)


def _two_digits(value: float) -> str:
    return f"{value:.2f}"


CAPTIONS: dict[str, Callable[[Tables], str]] = {
    "phase_times": _phase_times,
    "launch_bound": _launch_bound,
    "top_kernels": _top_kernels,
    "class_shares": _class_shares,
    "attention": _attention,
    "scaling": _scaling,
    "roofline": _roofline,
}
