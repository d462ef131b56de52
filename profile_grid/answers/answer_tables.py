"""The tables of the answers as people read them: one row per model and context, a status where there is no figure."""

from __future__ import annotations

import pandas as pd

from profile_grid.markdown import Table, escaped
from profile_grid.quantities import ABSENT, count, known, percent, points, rate, ratio, significant, with_spread
from profile_grid.tables.attention import PARTS, SOFTMAX
from profile_grid.tables.measured import COMPLETE, MODES, OUT_OF_MEMORY, Measured
from profile_grid.tables.shares import CONFIGURATION, NON_TRIVIAL_SHARE, family_shares, phase_shares, training_change
from profile_grid.tables.summary import ALL_PHASES, FORWARD, FORWARD_OTHERS, MATMUL, RUN_KEYS

STATUS_WORDS = {OUT_OF_MEMORY: "OOM", "incomplete": "incomplete", "missing": "missing"}
NOT_IN_GRID = "not run"
TOLD = 3
VISIBLE_SHARE = 0.0005  # a phase that reads 0.0 % in every row has no column


def forward_time_table(of: Measured) -> Table:
    """(a) The forward pass as Python's timer, NVTX and the GPU see it."""
    device = of.words.device
    headings = (
        "Python, ms", "profiled step, ms", "ratio", "within 5 %", "NVTX `forward`, ms", f"{device} first to last, ms",
        f"{device} busy, ms", f"{device} idle in step",
    )  # fmt: skip

    def cells(row) -> tuple[str, ...]:
        python = with_spread(row.unprofiled_step_ms, row.unprofiled_step_std_ms)
        profiled = with_spread(row.step_wall_ms, row.step_wall_std_ms)
        return (
            python if known(row.unprofiled_step_ms) else status_word(row.timing_status),
            profiled if known(row.step_wall_ms) else status_word(row.capture_status),
            ratio(row.overhead_ratio, row.overhead_ratio_std),
            {True: "yes", False: "no"}.get(row.matches_python, ABSENT) if known(row.matches_python) else ABSENT,
            with_spread(row.forward_wall_ms, row.forward_wall_std_ms),
            with_spread(row.forward_gpu_span_ms, row.forward_gpu_span_std_ms),
            with_spread(row.forward_gpu_busy_ms, row.forward_gpu_busy_std_ms),
            percent(row.idle_share),
        )

    return _table(of, headings, {row.run: cells(row) for row in of.inference("forward_time").itertuples()})


def timing_pivot(of: Measured) -> Table | None:
    """(a) Python's timing, models by contexts; nothing where that would be a single row or column."""
    rows = of.inference("forward_time")
    contexts, models = sorted(rows["context_length"].unique()), list(dict.fromkeys(rows["model"]))
    if len(contexts) < 2 or len(models) < 2:
        return None
    cells = {
        (row.model, row.context_length): with_spread(row.unprofiled_step_ms, row.unprofiled_step_std_ms)
        if known(row.unprofiled_step_ms)
        else status_word(row.timing_status)
        for row in rows.itertuples()
    }
    lines = tuple(
        (escaped(model), *(cells.get((model, context), NOT_IN_GRID) for context in contexts)) for model in models
    )
    return Table(("model", *(f"context {context}" for context in contexts)), lines, first_right=1)


def top_kernel_table(of: Measured) -> Table:
    """(b) The top kernel of every mode side by side: label, time per pass, invocations per pass, share."""
    top = of.tables["top_kernels"][of.tables["top_kernels"]["rank"] == 1]
    modes = [mode for mode in MODES if mode in set(of.runs["mode"])]
    cells = {
        (row.model, row.context_length, row.mode): _top_cell(row, of)
        for mode in modes
        for row in top[(top["mode"] == mode) & (top["scope"] == _scope(mode))].itertuples()
    }
    lines = tuple(
        (escaped(model), str(context), *(_cell(of, cells, model, context, mode) for mode in modes))
        for model, context in _configurations(of.runs)
    )
    return Table(("model", "context", *(MODES[mode] for mode in modes)), lines, first_right=9)


def class_table(of: Measured) -> Table:
    """(c) Shares of the forward pass's GPU time by class, the classes with most time first."""
    return _family_table(of, family_shares(of.inference("forward_classes")))


def others_table(of: Measured) -> Table:
    """(c) Outside matrix multiplies: the parts of the model and the kernels with most time, in order."""
    parts, top = of.inference("forward_parts"), of.inference("top_kernels")
    top = top[top["scope"] == FORWARD_OTHERS]
    cells = {}
    for run in of.runs["run"]:
        own = parts[(parts["run"] == run) & (parts["other_time_ms"] > 0)].nlargest(TOLD, "other_time_ms")
        named = top[top["run"] == run].head(TOLD)
        if not named.empty:
            told = [f"{escaped(row.part)} {percent(row.other_share)}" for row in own.itertuples()]
            kernels = [f"{of.label(row.kernel)} {percent(row.share)}" for row in named.itertuples()]
            cells[run] = (", ".join(told), ", ".join(kernels))
    headings = ("parts of the model", of.words.kernels)
    table = _table(of, headings, cells)
    return Table(table.headings, table.rows, first_right=9)


def parts_table(of: Measured) -> tuple[int, Table] | None:
    """(c) Share of the forward pass by part of the model, one column per model, and the context at which: the longest
    that most models have."""
    parts = of.inference("forward_parts")
    if parts.empty:
        return None
    models_at = parts.groupby("context_length")["model"].nunique()
    context = max(models_at[models_at == models_at.max()].index)
    rows = parts[parts["context_length"] == context]
    wide = rows.pivot_table(index="part", columns="model", values=["share", "other_share"], sort=False)
    models = list(dict.fromkeys(rows["model"]))
    order = wide["share"].mean(axis=1).sort_values(ascending=False).index
    lines = tuple(
        (escaped(part), *(_share_and_others(wide["share"][m][part], wide["other_share"][m][part]) for m in models))
        for part in order
    )
    return int(context), Table(("part", *(escaped(model) for model in models)), lines, first_right=1)


def change_table(of: Measured) -> Table:
    """(d) Every class's share in inference and in training; the first columns are the matrix multiplies."""
    change = _small_ones_together(training_change(of), ["inference", "training"])
    wide = change.pivot_table(index=CONFIGURATION, columns="family", values=["inference", "training"], sort=False)
    families = _by_size(change.assign(share=change[["inference", "training"]].max(axis=1)))
    cells = {}
    for row in of.runs[of.runs["mode"] == of.training_mode].itertuples():
        at = (row.model, row.context_length)
        if at in wide.index:
            cells[row.run] = tuple(
                _change_cell(wide.loc[at, ("inference", name)], wide.loc[at, ("training", name)], name == MATMUL)
                for name in families
            )
    return _table(of, tuple(f"{escaped(name)}, %" for name in families), cells, of.training_mode)


def phase_table(of: Measured) -> Table:
    """(d) Each phase's share of the training step, and of that phase the share of matrix multiplies."""
    shares = phase_shares(of)
    largest = shares.groupby("phase")["of_step"].max()
    phases = [phase for phase in dict.fromkeys(shares["phase"]) if largest[phase] >= VISIBLE_SHARE]
    cells = {}
    for run, rows in shares.groupby("run", sort=False):
        found = {row.phase: f"{percent(row.of_step)} ({percent(row.matmul)})" for row in rows.itertuples()}
        cells[run] = tuple(found.get(phase, ABSENT) for phase in phases)
    return _table(of, tuple(escaped(phase) for phase in phases), cells, of.training_mode)


def attention_table(of: Measured) -> Table:
    """(e) GPU time of one layer's parts of attention, rates, and the two ratios of softmax to the matrix multiplies."""
    rows = of.inference("attention")
    parts = [part for part in PARTS if part in set(rows["part"])]
    headings = (*(f"{part}, µs" for part in parts), "matmuls", "softmax", "runtime ratio", "FLOP ratio")
    cells = {}
    for run, own in rows.groupby("run", sort=False):
        by_part = own.set_index("part")
        times = [significant(by_part["gpu_time_per_layer_us"].get(part)) for part in parts]
        matmuls = by_part[by_part["flops_formula"] == "2·B·H·S²·d_head"]
        rate_of_matmuls = matmuls["flops_per_layer"].sum() / (matmuls["gpu_time_per_layer_us"].sum() * 1e-6)
        softmax = by_part.loc[SOFTMAX] if SOFTMAX in by_part.index else {}
        cells[run] = (
            *times,
            rate(rate_of_matmuls),
            rate(softmax.get("flop_per_s")),
            significant(softmax.get("runtime_to_matmuls")),
            significant(softmax.get("flops_to_matmuls")),
        )
    return _table(of, headings, cells)


def flops_table(of: Measured) -> Table:
    """(e) FLOPs of one layer's parts of attention: the formula, and the number for every model and context."""
    rows = of.inference("attention")
    rows = rows[rows["part"].isin(PARTS)].drop_duplicates([*CONFIGURATION, "part"])
    formulas = rows.drop_duplicates("part").set_index("part")["flops_formula"]
    headings = ("model", "context", *(f"{part}: {escaped(formula)}" for part, formula in formulas.items()))
    lines = tuple(
        (
            escaped(model),
            str(context),
            *(count(own.set_index("part")["flops_per_layer"].get(p)) for p in formulas.index),
        )
        for (model, context), own in rows.groupby(CONFIGURATION, sort=False)
    )
    return Table(headings, lines)


def status_word(status) -> str:
    """What stands in a cell instead of a figure."""
    return STATUS_WORDS.get(status, ABSENT if status == COMPLETE else escaped(str(status)))


def _change_cell(before: float, after: float, with_points: bool) -> str:
    change = f" ({points(after - before)})" if with_points else ""
    return f"{100 * before:.1f} → {100 * after:.1f}{change}"


def _scope(mode: str) -> str:
    return FORWARD if mode == "forward" else ALL_PHASES


def _top_cell(row, of: Measured) -> str:
    time = with_spread(row.gpu_time_ms, row.gpu_time_std_ms, "ms")
    times = count(row.invocations) + ("" if row.same_in_every_step else " (mean)")
    return f"{of.label(row.kernel)}: {time}, {times} ×, {percent(row.share)}"


def _share_and_others(share: float, others: float) -> str:
    return f"{percent(share)} ({percent(others)})" if known(share) else ABSENT


def _by_size(shares: pd.DataFrame) -> list[str]:
    """The families with matrix multiplies first, then by their mean share, without those that are nowhere."""
    mean = shares.groupby("family")["share"].mean().sort_values(ascending=False)
    rest = [name for name in mean[mean > 0].index if name != MATMUL]
    return [MATMUL, *rest] if MATMUL in mean.index else rest


def _small_ones_together(shares: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """The shares with all families that are trivial everywhere, two or more, as one family that names them."""
    largest = shares.groupby("family")[columns].max().max(axis=1)
    small = [name for name in largest[largest < NON_TRIVIAL_SHARE].index if name != MATMUL]
    present = [name for name in small if largest[name] > 0]
    if len(present) < 2:
        return shares
    named = shares.assign(family=shares["family"].where(~shares["family"].isin(small), ", ".join(present)))
    keys = [name for name in (*RUN_KEYS, "family") if name in named.columns]
    return named.groupby(keys, sort=False)[columns].sum().reset_index()


def _family_table(of: Measured, shares: pd.DataFrame) -> Table:
    shares = _small_ones_together(shares, ["share"])
    families = _by_size(shares)
    wide = shares.pivot_table(index="run", columns="family", values="share", sort=False)
    cells = {run: tuple(percent(wide.loc[run, name]) for name in families) for run in wide.index}
    return _table(of, tuple(escaped(name) for name in families), cells)


def _configurations(runs: pd.DataFrame) -> list[tuple[str, int]]:
    return list(dict.fromkeys(zip(runs["model"], runs["context_length"], strict=True)))


def _cell(of: Measured, cells: dict, model: str, context: int, mode: str) -> str:
    if (model, context, mode) in cells:
        return cells[model, context, mode]
    runs = of.runs
    row = runs[(runs["model"] == model) & (runs["context_length"] == context) & (runs["mode"] == mode)]
    return status_word(row["capture_status"].iloc[0]) if len(row) else NOT_IN_GRID


def _table(
    of: Measured, headings: tuple[str, ...], cells: dict[str, tuple[str, ...]], mode: str | None = None
) -> Table:
    """One line per run of a mode (inference if none is named): its cells, or its status and nothing else."""
    lines = []
    for row in of.runs[of.runs["mode"] == (mode or of.inference_mode)].itertuples():
        blank = (status_word(row.capture_status), *[ABSENT] * (len(headings) - 1))
        lines.append((escaped(row.model), str(row.context_length), *cells.get(row.run, blank[: len(headings)])))
    return Table(("model", "context", *headings), tuple(lines))
