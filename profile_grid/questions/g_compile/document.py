"""What the document of (g) says: sentences and tables."""

from __future__ import annotations

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, counted, interval, known, percent, significant
from profile_grid.questions.g_compile.parts_sentences import fused_sentences, matmuls_sentence
from profile_grid.study.dimensions import COMPILE, MODEL
from profile_grid.tables import ratio_tables
from profile_grid.tables.apart import shown_dimensions, sorted_values, split
from profile_grid.tables.cells import headings_of, leading_cells
from profile_grid.tables.classes import NON_TRIVIAL_SHARE
from profile_grid.tables.measured import Measured
from profile_grid.tables.model_parts import parts_in
from profile_grid.tables.names import BACKWARD, FORWARD
from profile_grid.tables.ratio_sentences import gain_sentences, ideal_sentence, without
from profile_grid.tables.wording import capital, extremes, listed, places

BASE = COMPILE.name_of(COMPILE.default)
NO_PAIR = f"Not answered: no two timed runs differ in {COMPILE.heading} alone, with one that is {BASE} among them."
SMALLER = "(smaller ones)"
LEADING_DIMENSIONS = (*ratio_tables.ALWAYS, COMPILE.key)


def sentences(measured: Measured) -> list[str]:
    """(g) For the whole model and for attention alone: speed-ups, kernels before and after, and the cost."""
    times = measured.tables["compile_times"]
    if times.empty:
        return [NO_PAIR]
    found = []
    for value in sorted_values(times, COMPILE.key):
        own, cost, kernels, parts = (_of(measured, name, value) for name in ("times", "cost", "kernels", "parts"))
        found += [*gain_sentences(own, COMPILE, BASE), *_kernels(kernels, measured), *fused_sentences(parts, measured)]
        found += _cost(without(cost, COMPILE))
    found += [*_graphs(measured.tables["compile_cost"]), *ideal_sentence(times, BASE)]
    return [*found, *matmuls_sentence(measured.tables["compile_parts"])]


def _of(measured: Measured, name: str, value: str) -> pd.DataFrame:
    table = measured.tables[f"compile_{name}"]
    return table[table[COMPILE.key] == value]


def _kernels(rows: pd.DataFrame, measured: Measured) -> list[str]:
    """How many kernels of a step are left, and the families of classes that lost and won most GPU time."""
    if rows.empty:
        return []
    sums = rows.groupby("run", sort=False)[["invocations", "base_invocations", "gpu_time_ms", "base_gpu_time_ms"]].sum()
    left = interval(sums["invocations"] / sums["base_invocations"], percent)
    whole = interval(sums["gpu_time_ms"] / sums["base_gpu_time_ms"], percent)
    words = measured.words
    return [
        f"{capital(left)} of the {words.kernels} of a step are left, and {whole} of their {words.time}.",
        *_moved(rows),
    ]


def _moved(rows: pd.DataFrame) -> list[str]:
    """The family that lost most time, and the one that won most, over all runs."""
    change = (rows["gpu_time_ms"] - rows["base_gpu_time_ms"]).groupby(rows["class"]).sum()
    told = [(change.idxmin(), "lose most of it", change.min() < 0), (change.idxmax(), "take more", change.max() > 0)]
    parts = [f"{name} {verb} ({_before_and_after(rows[rows['class'] == name])})" for name, verb, true in told if true]
    return [f"By class, {listed(parts)}."] if parts else []


def _before_and_after(rows: pd.DataFrame) -> str:
    sums = rows.groupby("run", sort=False)[["base_gpu_time_ms", "gpu_time_ms"]].sum()
    before, after = (interval(sums[name], significant) for name in ("base_gpu_time_ms", "gpu_time_ms"))
    return f"{before} ms before, {after} ms after"


def _cost(cost: pd.DataFrame) -> list[str]:
    """The seconds of compilation, and after how many steps they have paid."""
    if cost["compile_s"].dropna().empty:
        return ["What compiling cost is not known."]
    seconds = extremes(cost, "compile_s", lambda row: f"{significant(row['compile_s'])} s")
    paid, never = cost[cost["steps_to_pay"].notna()], cost[cost["gained_ms"] <= 0]
    told = [f"Compiling, with an empty cache, takes {seconds}"]
    if len(paid):
        told.append(f"which {interval(paid['steps_to_pay'].round(), count)} steps pay for")
    if len(never):
        told.append(f"which nothing pays for in {places(never)}")
    return [", ".join(told) + "."]


def _graphs(cost: pd.DataFrame) -> list[str]:
    """Whether any graph was broken."""
    known = cost[cost["graph_breaks"].notna()]
    broken = known[known["graph_breaks"].astype("float64") > 0]
    if known.empty:
        return []
    if broken.empty:
        return [f"Dynamo traced {counted(known['graphs'], 'graph')} per run, without a break."]
    return [f"The graph is broken into parts in {places(broken)}."]


def steps_table(measured: Measured) -> MarkdownTable | None:
    """(g) One line per configuration: its step as written, then its time and speed-up compiled."""
    return ratio_tables.steps_table(measured.tables["compile_times"], COMPILE)


def phases_table(measured: Measured) -> MarkdownTable | None:
    """(g) One line per compiled run with a backward pass: the speed-up of each phase."""
    return ratio_tables.phases_table(measured.tables["compile_times"], COMPILE)


def kernels_table(measured: Measured) -> MarkdownTable | None:
    """(g) One line per compiled run: kernels of a step, and GPU time by family of classes, before and after."""
    rows = measured.tables["compile_kernels"]
    if rows.empty:
        return None
    figures = ["base_gpu_time_ms", "gpu_time_ms", "base_invocations", "invocations"]
    families = list(rows.groupby("class")[figures[:2]].sum().sum(axis=1).sort_values(ascending=False).index)
    shown, lines = shown_dimensions(rows, LEADING_DIMENSIONS), []
    for _, own in rows.groupby("run", sort=False):
        by_class, whole = own.groupby("class")[figures].sum(), own[figures].sum()
        launches = f"{count(whole['base_invocations'])} → {count(whole['invocations'])}"
        times = [_change(by_class.loc[name]) if name in by_class.index else ABSENT for name in families]
        lines.append((*leading_cells(own.iloc[0].to_dict(), shown), launches, _change(whole), *times))
    headings = (measured.words.kernels, "all, ms", *(f"{escaped(name)}, ms" for name in families))
    return MarkdownTable((*headings_of(shown), *headings), tuple(lines), first_right=len(shown))


def parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(g) What the kernels of the forward pass serve, and of the backward pass where a run has one: a column per model,
    a table with its title for each combination of the other dimensions."""
    modes = {FORWARD: measured.inference_mode, BACKWARD: measured.training_mode}
    found = []
    for phase, mode in modes.items():
        rows = measured.tables["compile_parts"]
        rows = rows[(rows["phase"] == phase) & (rows["mode"] == mode)]
        told = split(rows, (MODEL.key,)) if len(rows) else ()
        found += [(", ".join(filter(None, (phase, title))), _parts_table(own)) for title, own in told]
    return found


def _parts_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per set of parts, most time first, and one for all that are trivial on both sides."""
    base_share = rows["base_gpu_time_ms"] / rows.groupby("run")["base_gpu_time_ms"].transform("sum")
    trivial = (rows["share"].fillna(0.0) < NON_TRIVIAL_SHARE) & (base_share.fillna(0.0) < NON_TRIVIAL_SHARE)
    lines = rows["parts"].where(~trivial.groupby(rows["parts"]).transform("all"), SMALLER)
    figures = ["base_gpu_time_ms", "gpu_time_ms", "base_others_ms"]
    sums = rows.assign(line=lines).groupby(["line", MODEL.key], sort=False)[figures].sum()
    by_time = sums.groupby("line")["gpu_time_ms"].sum().sort_values(ascending=False, kind="stable").index
    order = sorted(by_time, key=lambda line: line == SMALLER)
    models = list(dict.fromkeys(rows[MODEL.key]))
    cells = (tuple(_sides(line, sums, model) for model in models) for line in order)
    table = tuple((escaped(line), *told) for line, told in zip(order, cells, strict=True))
    return MarkdownTable(("parts", *(f"{escaped(model)}, ms" for model in models)), table, first_right=1)


def _sides(line: str, sums: pd.DataFrame, model: str) -> str:
    """GPU time before and after; in brackets what the parts of a set take before besides matrix multiplies."""
    if (line, model) not in sums.index:
        return ABSENT
    row = sums.loc[(line, model)]
    fused = len(parts_in(line)) > 1 and not row["base_gpu_time_ms"]
    before = f"({significant(row['base_others_ms'])})" if fused else significant(row["base_gpu_time_ms"])
    return f"{before} → {significant(row['gpu_time_ms'])}"


def cost_table(measured: Measured) -> MarkdownTable:
    """(g) One line per compiled run: seconds of compilation, what a step gains, and steps until that has paid."""
    rows = measured.tables["compile_cost"]
    shown = shown_dimensions(rows, LEADING_DIMENSIONS)
    lines = tuple(
        (
            *leading_cells(row, shown), significant(row["compile_s"]), significant(row["gained_ms"]),
            count(round(row["steps_to_pay"])) if known(row["steps_to_pay"]) else "never", count(row["graphs"]),
            count(row["graph_breaks"]),
        )
        for row in rows.to_dict("records")
    )  # fmt: skip
    headings = ("compiling, s", "gain per step, ms", "steps to pay", "graphs", "breaks")
    return MarkdownTable((*headings_of(shown), *headings), lines, first_right=len(shown))


def _change(figures) -> str:
    return f"{significant(figures['base_gpu_time_ms'])} → {significant(figures['gpu_time_ms'])}"
