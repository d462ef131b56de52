"""What the document of (g) says: sentences and tables."""

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, count, interval, known, percent, significant
from profile_grid.study.dimensions import COMPILE, MODEL
from profile_grid.tables import classes, evidence, model_parts, pivoting
from profile_grid.tables.cells import Part, lines_table, rows_table, titled
from profile_grid.tables.gains import (
    LEADING_KEYS,
    counts_by_value,
    largest_gain,
    phases_table,
    steps_table,
    whole_steps,
)
from profile_grid.tables.measured import Measured
from profile_grid.tables.names import BACKWARD, FORWARD, NO_RANGE
from profile_grid.tables.wording import PASSES, Claim, capital, listed, run_in_words, runs_in_words

BASE = COMPILE.name_of(COMPILE.default)
NO_ANSWER = Claim(
    "Not answered: no two timed runs differ only in {compile}, one of them {base}.", "missing",
    compile=COMPILE.heading, base=BASE,
)  # fmt: skip
SMALLER = "(smaller ones)"  # stands for all sets of parts with a trivial share
KEYS_OF_LINES = (*LEADING_KEYS, COMPILE.key)
MAX_NAMED = 3  # sets of parts whose number of matrix multiplies differs


def sentences(measured: Measured) -> list[Claim]:
    """(g) The largest speed-up; the cost of compiling; counts of faster runs; matrix multiplies; kernels; parts."""
    times, cost = measured.tables["compile_times"], measured.tables["compile_cost"]
    if times.empty:
        return [NO_ANSWER]
    parts = measured.tables["compile_parts"]
    claims = [largest_gain(times, COMPILE, base=BASE), *_cost(times, cost), *counts_by_value(times, COMPILE)]
    compiled = pivoting.sorted_values(times, COMPILE.key)[0]  # declared first: the entire model is compiled
    return [*claims, *_matmuls(parts), *_kernels(compiled, measured), *_fused(parts, measured)]


def _kernels(compiled: str, measured: Measured) -> list[Claim]:
    """By mode, launches and GPU time of a step relative to those of the baseline, in the runs with this value of
    COMPILE."""
    kernels, words = measured.tables["compile_kernels"], measured.words
    texts = []
    for mode, rows in kernels[kernels[COMPILE.key] == compiled].groupby("mode", sort=False):
        sums = rows.groupby("run", sort=False).sum(numeric_only=True)
        launches = percent((sums["invocations"] / sums["base_invocations"]).median())
        time = percent((sums["gpu_time_ms"] / sums["base_gpu_time_ms"]).median())
        medians = " (medians)" if len(sums) > 1 else ""
        texts.append(
            f"{PASSES[mode]} launches {launches} as many {words.kernels} as not compiled and takes {time} as much"
            f" {words.time}{medians}."
        )
    value, joined = capital(COMPILE.words(compiled)), " ".join([*texts[:1], *map(capital, texts[1:])])
    return [Claim("{value}, {sentences}", value=value, sentences=joined)] if texts else []


def _cost(times: pd.DataFrame, cost: pd.DataFrame) -> list[Claim]:
    """The seconds of compilation, after how many steps clear gains repay them, and in which runs graphs are broken."""
    if cost["compile_s"].dropna().empty:
        return [Claim("The cost of compiling is not known.", "missing")]
    faster_steps = whole_steps(times[times["verdict"] == evidence.FASTER])
    steps_to_pay = cost.loc[cost["run"].isin(faster_steps["run"]), "steps_to_pay"].dropna().round()
    repaid = graphs = ""
    if len(steps_to_pay):
        repaid = f"; in runs that are clearly faster, {interval(steps_to_pay, count)} steps make up for it"
    broken_runs = cost[cost["graph_breaks"].fillna(0).astype("float64") > 0]
    if len(broken_runs):
        graphs = f"; the graph is broken in {runs_in_words(broken_runs)}"
    seconds = interval(cost["compile_s"], significant)
    text = "Compiling takes {seconds} s with an empty cache{repaid}{graphs}."
    return [Claim(text, seconds=seconds, repaid=repaid, graphs=graphs)]


def _fused(rows: pd.DataFrame, measured: Measured) -> list[Claim]:
    """By phase, the share of time in kernels that serve several parts."""
    compiled = rows[rows["gpu_time_ms"] > 0]
    if (compiled["parts"] == NO_RANGE).all():
        return []
    is_fused = compiled["parts"].map(lambda parts: len(model_parts.parts_in(parts)) > 1)
    compiled = compiled.assign(fused_share=compiled["share"].where(is_fused, 0.0))
    texts = [
        f"{interval(phase_rows.groupby('run')['fused_share'].sum(), percent)} of {phase}"
        for phase, phase_rows in _rows_by_phase(compiled, measured).items()
    ]
    if not texts:
        return []
    text = "{kernels} that compute several parts of the model at once take {texts}."
    return [Claim(text, kernels=capital(measured.words.kernels), texts=listed(texts))]


def _matmuls(rows: pd.DataFrame) -> list[Claim]:
    """The sets of parts whose number of matrix multiplies differs when compiled: the first MAX_NAMED by name."""
    differing = rows[rows["matmuls"] != rows["base_matmuls"]]
    texts = [
        f"**{escaped(row['parts'])}** in {run_in_words(row)}, {row['phase']} ({count(row['base_matmuls'])} before,"
        f" {count(row['matmuls'])} after)"
        for row in differing.head(MAX_NAMED).to_dict("records")
    ]
    rest = f" and {len(differing) - MAX_NAMED} more" if len(differing) > MAX_NAMED else ""
    text = "The number of matrix multiplies differs when compiled: {named}{more}."
    return [Claim(text, "counted", named="; ".join(texts), more=rest)] if texts else []


def tables(measured: Measured) -> list[Part]:
    """(g) Steps and phases with their speed-ups, the cost of compiling, and kernels and parts before and after."""
    times, words = measured.tables["compile_times"], measured.words
    return [
        ("A step without a profiler, in brackets how many times as fast as not compiled", steps_table(times, COMPILE)),
        ("What compiling costs", rows_table(measured.tables["compile_cost"], KEYS_OF_LINES, COST_COLUMNS)),
        ("How many times as fast each phase is, without a profiler", phases_table(times, COMPILE)),
        (f"Launches of {words.kernels} in a step and {words.time} by class, not compiled → compiled",
         _kernels_table(measured)),
        *titled(f"{words.time} of the parts of the model, not compiled → compiled", _parts_tables(measured),
                "{} ({})"),
    ]  # fmt: skip


COST_COLUMNS = (
    ("compiling, s", lambda row: significant(row["compile_s"])),
    ("gain per step, ms", lambda row: significant(row["gained_ms"])),
    ("steps until repaid", lambda row: count(round(row["steps_to_pay"])) if known(row["steps_to_pay"]) else "never"),
    ("graphs of torch.compile", lambda row: count(row["graphs"])),
    ("graph breaks", lambda row: count(row["graph_breaks"])),
)


def _kernels_table(measured: Measured) -> MarkdownTable:
    """(g) One line per compiled run: kernels of a step, and GPU time by family of classes, not compiled → compiled."""
    rows = measured.tables["compile_kernels"]
    times = ["base_gpu_time_ms", "gpu_time_ms"]
    by_family = rows.groupby("class")[times].sum().sum(axis=1)  # in this table, the column class holds families
    families = list(by_family.sort_values(ascending=False).index)

    def cells(run: dict) -> list[str]:
        run_kernels = rows[rows["run"] == run["run"]]
        run_families, total = run_kernels.groupby("class")[times].sum(), run_kernels[times].sum()
        launches = " → ".join(count(run_kernels[name].sum()) for name in ("base_invocations", "invocations"))
        changes = [_change(run_families.loc[name]) if name in run_families.index else ABSENT for name in families]
        return [launches, _change(total), *changes]

    headings = (measured.words.kernels, "all, ms", *(f"{escaped(name)}, ms" for name in families))
    return lines_table(rows.drop_duplicates("run"), KEYS_OF_LINES, headings, cells)


def _parts_tables(measured: Measured) -> list[tuple[str, MarkdownTable]]:
    """(g) GPU time by set of parts, a column per model: (title, table) for each pass and each combination of further
    dimensions that vary."""
    return [
        (f"{phase}, {title}" if title else phase, _parts_table(table_rows))
        for phase, rows in _rows_by_phase(measured.tables["compile_parts"], measured).items()
        for title, table_rows in pivoting.split(rows, (MODEL.key,))
    ]


def _rows_by_phase(rows: pd.DataFrame, measured: Measured) -> dict[str, pd.DataFrame]:
    """By FORWARD, the rows of the forward pass in the inference mode; by BACKWARD, those of the backward pass in the
    training mode. A pass without rows is left out."""
    modes = {FORWARD: measured.inference_mode, BACKWARD: measured.training_mode}
    by_phase = {phase: rows[(rows["phase"] == phase) & (rows["mode"] == mode)] for phase, mode in modes.items()}
    return {phase: phase_rows for phase, phase_rows in by_phase.items() if len(phase_rows)}


def _parts_table(rows: pd.DataFrame) -> MarkdownTable:
    """One line per set of parts, the longest first, and one line for all trivial sets."""
    base_share = rows["base_gpu_time_ms"] / rows.groupby("run")["base_gpu_time_ms"].transform("sum")
    larger_share = pd.concat([rows["share"], base_share], axis=1).max(axis=1)
    is_large = (larger_share >= classes.NON_TRIVIAL_SHARE).groupby(rows["parts"]).transform("any")
    rows = rows.assign(parts=rows["parts"].where(is_large, SMALLER))
    times = ["base_gpu_time_ms", "gpu_time_ms", "base_others_ms"]
    sums = rows.groupby(["parts", MODEL.key], sort=False)[times].sum()
    longest_first = sums.groupby("parts")["gpu_time_ms"].sum().sort_values(ascending=False, kind="stable").index
    sets = sorted(longest_first, key=lambda parts: parts == SMALLER)  # which comes last
    models = list(dict.fromkeys(rows[MODEL.key]))
    lines = tuple((escaped(parts), *(_before_and_after(parts, sums, model) for model in models)) for parts in sets)
    return MarkdownTable(("parts", *(f"{escaped(model)}, ms" for model in models)), lines, first_right=1)


def _before_and_after(parts: str, sums: pd.DataFrame, model: str) -> str:
    """GPU time not compiled → compiled. If no kernel serves this set of parts when not compiled, brackets show the time
    that its parts take then, without matrix multiplies."""
    if (parts, model) not in sums.index:
        return ABSENT
    row = sums.loc[(parts, model)]
    is_fused = len(model_parts.parts_in(parts)) > 1 and not row["base_gpu_time_ms"]
    base_text = f"({significant(row['base_others_ms'])})" if is_fused else significant(row["base_gpu_time_ms"])
    return f"{base_text} → {significant(row['gpu_time_ms'])}"


def _change(times: pd.Series) -> str:
    return f"{significant(times['base_gpu_time_ms'])} → {significant(times['gpu_time_ms'])}"
