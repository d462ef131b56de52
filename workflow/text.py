"""From tables to Markdown: the Jinja environment in which every document is written.

A template holds the prose and gets facts; a script that has more facts than tables hands them over by name:

    environment(tables).get_template("f_precision.md.j2").render(speed_ups=frame)

What every template gets:

- `tables`: the frames by name, as in `tables.forward_time`
- `runs`: the table of runs; `machine`: the sentence that says what was measured with
- `inference`, `training`: the modes that stand for both ("forward", "train_step", or what the grid has instead)
- `on_gpu`; `kernel` ("kernel" or "operator"); `gpu_time` ("GPU time" or "operator time")
- `columns({"heading": column, ...})`: a frame of columns with the same index, in the order of the grid
- `describe(run)`: a run in words, as in "10B at context 512, training step"
- `mode_name(mode)`: "forward pass", "forward + backward", "training step"
- `peak_flop_per_s(device_name, precision)`: of the maker's data sheet, NaN if it is not known

Filters that write numbers take one number, or a column or frame, which becomes one of texts; nothing is "–":

- `number`: 12.3456 is "12.3"; `number(2)`: two digits      - `amount`: 1003.0 is "1,003"
- `percent`: 0.3821 is "38.2 %"                             - `points`: -0.123 is "−12.3"
- `size`: bytes as "82 MiB"                                 - `rate`: 2.41e13 is "24.1 TFLOP/s"
- `spread`: `rows.ms | spread(rows.std_ms)` is "12.3 ± 0.4"

Others:

- `select`: `tables.attention | select(training)`: the rows of a mode in the order of the grid; their index is model,
  context and what else varies. Columns of two such tables of the same runs can be added, divided and compared.
- `plain`: of selected rows, those of the first run's precision, compilation, attention and so on, for long tables
- `range`: of a column, "8.24 to 727"; `range("percent")`, `range(unit=" ms", median=True)`
- `count`: of truths, "17 of 20 runs"; `commonest`: of names, "`rope` in 14 of 20 runs"
- `middle`: `rows | middle("ms")`: the row with the median of a column, the lower of two: the typical run of a lead
- `short`: of a column of kernels, their short names, which are all different
- `largest`: `rows | largest("part", "share", 3)`: by run, "rope 7.2 %, norm 6.3 %"
- `filled`: `texts | filled(mode)`: with the status ("OOM") of the runs of that mode that have no text
- `by`: `texts | by("model")`: a column per model; `by("context")`, `by("phase")`
- `markdown`: a frame as a table; on the left its index, in which several varying dimensions share a column
- `escape`: text from outside (names of kernels, reasons), in which Markdown would read signs; `code`: the same as code.
  `markdown` and `by` escape the index by themselves, and headings that come from it; cells not.
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import jinja2
import pandas as pd

from kernel_tables.kernel_names.short import short_names
from workflow.grid import KEYS, Run
from workflow.peaks import peak_flop_per_s

ABSENT = "–"
LONG_CELL = 30  # characters, from which a column is read as text and aligned on the left
TEMPLATES = Path(__file__).parent / "templates"
VARIANTS = KEYS[3:]  # without model, context_length and mode
DEFAULTS = {key: str(getattr(Run(model=""), key)) for key in VARIANTS if key != "batch_size"}  # that has no usual one
VARIANT_WORDS = {  # what is said of a value that is no default
    "batch_size": "batch {}", "compile": "compiled {}", "attention": "{} attention", "checkpoint": "checkpoint {}",
    "gpus": "{} GPUs", "optimizer": "{} optimizer", "precision": "{}", "parallel": "{}",
}  # fmt: skip
MODES = {"forward": "forward pass", "forward_backward": "forward + backward", "train_step": "training step"}
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def environment(tables: dict[str, pd.DataFrame], templates: Path = TEMPLATES) -> jinja2.Environment:
    """The environment of the templates in a folder, with the facts and filters of the docstring of this module."""
    runs = tables["runs"]
    runs = runs[runs["mode"].isin(list(MODES))]  # attention alone has no mode
    on_gpu = "cuda" in set(tables["runs"]["device"])
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"],
    )  # fmt: skip
    made.filters |= {
        **{name: partial(write_each, write) for name, write in NUMBERS.items()},
        "spread": write_spread, "range": write_range, "count": write_count, "commonest": write_commonest,
        "largest": list_largest, "middle": find_middle, "plain": keep_plain, "by": spread_columns,
        "markdown": write_markdown,
        "escape": partial(write_each, escape), "code": partial(write_each, write_code),
        "select": lambda table, mode: select(table, runs, mode),
        "filled": lambda texts, mode: fill_with_status(texts, runs, mode),
        "short": lambda names: shorten(names, tables.get("top_kernels")),
    }  # fmt: skip
    made.globals |= {
        "tables": tables,
        "runs": tables["runs"],
        "inference": next((mode for mode in MODES if mode in set(runs["mode"])), "forward"),
        "training": next((mode for mode in reversed(MODES) if mode in set(runs["mode"])), "train_step"),
        "on_gpu": on_gpu,
        "kernel": "kernel" if on_gpu else "operator",
        "gpu_time": "GPU time" if on_gpu else "operator time",
        "machine": describe_machine(tables["runs"]),
        "columns": lambda columns: order_rows(pd.DataFrame(columns), runs),
        "describe": lambda run: describe_run(tables["runs"], run),
        "mode_name": lambda mode: MODES.get(mode, mode),
        "peak_flop_per_s": peak_flop_per_s,
    }
    return made


def label_keys(runs: pd.DataFrame) -> list[str]:
    """The columns that tell the runs of a mode apart: model, context length, and what else has several values."""
    return ["model", "context_length", *(key for key in VARIANTS if runs[key].nunique() > 1)]


def select(table: pd.DataFrame, runs: pd.DataFrame, mode: str) -> pd.DataFrame:
    """The rows of a mode in the order of `runs`; index: model, context and what else varies."""
    keys = label_keys(runs)
    order = {run: index for index, run in enumerate(runs["run"])}
    rows = table[(table["mode"] == mode) & table["run"].isin(order)]
    rows = rows.sort_values("run", key=lambda names: names.map(order), kind="stable")
    return rows.rename(columns={"context_length": "context"}).set_index([_label(key) for key in keys])


def order_rows(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """A frame of selected rows in the order of the grid, since pandas sorts where indices differ."""
    order = pd.MultiIndex.from_frame(runs[label_keys(runs)].drop_duplicates())
    order.names = list(map(_label, order.names))
    return table.reindex(order[order.isin(table.index)]) if table.index.names == order.names else table


def fill_with_status(texts: pd.Series, runs: pd.DataFrame, mode: str) -> pd.Series:
    """The texts with a row for every run of a mode: where there is none, the status of its capture or timing."""
    index = select(runs, runs, mode)
    failed = index["capture_status"].where(index["capture_status"] != "complete", index["timing_status"])
    words = failed.replace({"out_of_memory": "OOM", "complete": ABSENT}).str.replace("_", " ")
    return texts.where(texts != ABSENT).reindex(index.index).fillna(words)


def describe_machine(runs: pd.DataFrame) -> str:
    """What was measured with, as a sentence; several values of one fact are all named."""
    profilers = {"nsys": "Nsight Systems", "torch": "PyTorch's own profiler"}
    facts = {"": "device_name", "driver ": "driver", "CUDA ": "cuda", "PyTorch ": "torch"}
    values = {label: list(map(str, runs[name].dropna().unique())) for label, name in facts.items() if name in runs}
    texts = [label + " and ".join(known) for label, known in values.items() if known]
    for backend, rows in runs.groupby("backend"):
        versions = " and ".join(map(str, rows["nsys"].dropna().unique())) if backend == "nsys" else ""
        texts.append(f"{profilers.get(backend, backend)} {versions}".strip())
    return f"Measured on {escape(', '.join(texts) or 'an unknown device')}."


def describe_run(runs: pd.DataFrame, run: str) -> str:
    """A run in words: "10B at context 512, training step, bf16", with what is not the default of the grid; escaped."""
    row = runs.set_index("run").loc[run]
    if row["mode"] not in MODES:
        return escape(run)
    variant = describe_variant(row, label_keys(runs)[2:])
    return escape(", ".join([f"{row['model']} at context {row['context_length']}", MODES[row["mode"]], *variant]))


def describe_variant(row: dict | pd.Series, keys: Iterable[str]) -> list[str]:
    """The values of these dimensions in words, without defaults: "bf16", "flash attention", "2 GPUs", "ddp"."""
    values = {key: str(row[key]) for key in keys if str(row[key]) != DEFAULTS.get(key)}
    texts = (VARIANT_WORDS.get(key, key.replace("_", " ") + " {}").format(value) for key, value in values.items())
    return [text.removesuffix(" on") for text in texts]  # "compiled on" is the whole


def list_missing(runs: pd.DataFrame) -> list[str]:
    """What was asked for and not measured, a line each with the reason."""
    stages = [name for name in runs if name.endswith("_status")]
    lines = []
    for row in runs.to_dict("records"):
        asked = {stage: row[stage] for stage in stages if row[stage] != "not_asked" and not pd.isna(row[stage])}
        failed = {stage.removesuffix("_status"): why for stage, why in asked.items() if why != "complete"}
        for status in dict.fromkeys(failed.values()):
            names = [stage for stage, why in failed.items() if why == status]
            stage = f" ({', '.join(names)})" if len(names) < len(asked) else ""
            lines.append(f"{describe_run(runs, row['run'])}{stage}: {escape(_reason(row, status))}")
    return lines


def _reason(row: dict, status: str) -> str:
    text = status.replace("_", " ")
    if status == "out_of_memory" and not pd.isna(row.get("oom_requested_bytes")):
        sizes = [write_size(row[f"oom_{name}_bytes"]) for name in ("requested", "free", "total")]
        during = "initialization" if row["oom_during"] == "initialise" else str(row["oom_during"]).replace("_", " ")
        return f"{text} in {during}: {sizes[0]} requested, {sizes[1]} free of {sizes[2]}"
    return text if pd.isna(row.get("reason")) else f"{text}: {row['reason']}"


def write_each(write: Callable, value, *arguments):
    """A text from a value, or from each of a column or frame."""
    if isinstance(value, pd.DataFrame | pd.Series):
        return value.map(lambda one: write(one, *arguments)).astype("object")
    return write(value, *arguments)


def write_number(value: float, digits: int = 3) -> str:
    """A number with at least this many significant digits and no exponent: 1234 stays 1234, 0.012345 is 0.0123."""
    if pd.isna(value):
        return ABSENT
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2]) if value else digits - 1
    return f"{value:.{max(0, digits - 1 - exponent)}f}".replace("-", "−")


def write_amount(count: float) -> str:
    """A number of things, which is whole if all steps are the same."""
    return ABSENT if pd.isna(count) else f"{count:,.1f}".removesuffix(".0")


def write_percent(share: float) -> str:
    """A share of 1 in percent; more than nothing never looks like nothing."""
    if pd.isna(share):
        return ABSENT
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:z.1f} %".replace("-", "−")


def write_points(difference: float) -> str:
    """A difference of two shares in percentage points, with its sign."""
    return ABSENT if pd.isna(difference) else f"{100 * difference:+z.1f}".replace("-", "−")


def write_size(count: float) -> str:
    """Bytes in GiB with one decimal, in MiB or KiB below one of these."""
    if pd.isna(count):
        return ABSENT
    for unit, name, decimals in ((2**30, "GiB", 1), (2**20, "MiB", 0), (2**10, "KiB", 0)):
        if abs(count) >= unit:
            return f"{count / unit:,.{decimals}f} {name}"
    return f"{count:,.0f} B"


def write_rate(flop_per_s: float) -> str:
    """FLOP per second with the prefix that fits."""
    if pd.isna(flop_per_s):
        return ABSENT
    factor, prefix = next(((factor, prefix) for factor, prefix in PREFIXES if flop_per_s >= factor), (1, ""))
    return f"{write_number(flop_per_s / factor)} {prefix}FLOP/s"


def write_spread(mean, std):
    """A mean and its standard deviation, which gets one digit, two if the first is 1: "12.3 ± 0.4"."""
    if isinstance(mean, pd.Series):
        texts = [write_spread(*pair) for pair in zip(mean, std, strict=True)]
        return pd.Series(texts, mean.index, dtype="object")
    if pd.isna(mean) or pd.isna(std) or std <= 0:
        return write_number(mean)
    digit, _, exponent = f"{std:.0e}".partition("e")
    decimals = min(6, max(0, (digit == "1") - int(exponent)))
    return f"{mean:.{decimals}f} ± {std:.{decimals}f}"


def write_range(values: pd.Series, kind: str = "number", unit: str = "", median: bool = False) -> str:
    """The smallest to the largest of several numbers: "8.24 to 727 ms (median 73.5 ms)"."""
    values = values.dropna()
    if values.empty:
        return ABSENT
    low, high, middle = (NUMBERS[kind](value) for value in (values.min(), values.max(), values.median()))
    if low == high:
        return f"{low}{unit}"
    return f"{low} to {high}{unit}" + (f" (median {middle}{unit})" if median and len(values) > 2 else "")


def write_count(truths: pd.Series, noun: str = "run") -> str:
    """In how many runs something is true: "17 of 20 runs", "all 20 runs", "none of 20 runs", "the only run"."""
    total, count = len(truths), int(truths.sum())
    if total == 1:
        return f"the only {noun}" if count else f"none of 1 {noun}"
    return f"{'all' if count == total else f'{count} of' if count else 'none of'} {total} {noun}s"


def write_commonest(names: pd.Series) -> str:
    """The commonest name and in how many runs it is the one: "`rope` in 14 of 20 runs"."""
    if names.empty:
        return ABSENT
    first = names.mode().iloc[0]
    return f"{write_code(first)} in {write_count(names == first)}"


def list_largest(rows: pd.DataFrame, name: str, share: str, count: int, form: str = "{} {}") -> pd.Series:
    """By run, the names with the largest shares, escaped, and these: "rope 7.2 %, norm 6.3 %"."""
    rows = rows[rows[share] > 0].sort_values(share, ascending=False, kind="stable")
    pairs = zip(rows[name], rows[share], strict=True)
    texts = [form.format(escape(of), write_percent(value)) for of, value in pairs]
    texts = pd.Series(texts, rows.index, dtype="object")
    return texts.groupby(level=rows.index.names, sort=False).agg(lambda group: ", ".join(group[:count]))


def find_middle(rows: pd.DataFrame, column: str) -> pd.Series:
    """The row with the median of a column, the lower of two."""
    known = rows[rows[column].notna()].sort_values(column, kind="stable")
    return known.iloc[(len(known) - 1) // 2]


def keep_plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Of selected rows, those whose dimensions are the same as of the first, except for model and context."""
    for name in [name for name in rows.index.names if name in VARIANTS]:
        values = rows.index.get_level_values(name)
        rows = rows[values == values[0]] if len(values) else rows
    return rows


def shorten(names: pd.Series, top_kernels: pd.DataFrame | None) -> pd.Series:
    """The short names of kernels; the same in all documents, since those of `top_kernels` are told apart, too."""
    others = [] if top_kernels is None else list(top_kernels["kernel"].unique())
    return names.map(short_names([*others, *names.unique()])).astype("object")


def spread_columns(rows: pd.Series, name: str) -> pd.DataFrame:
    """A column per value of a level of the index; rows and columns in their order."""
    others = [key for key in rows.index.names if key != name]
    index = rows.index.droplevel(name).unique()
    table = rows.unstack(name)[rows.index.get_level_values(name).unique()].reindex(index).rename_axis(others)
    return table.rename(columns=("context {}" if name == "context" else "{}").format).rename(columns=escape)


def write_markdown(table: pd.DataFrame) -> str:
    """A Markdown table that no text breaks. Left is the index: model and context, and what has several values; if that
    are several dimensions, one column `variant` that names what is no default."""
    names = [
        name for name in table.index.names if name not in VARIANTS or table.index.get_level_values(name).nunique() > 1
    ]
    index = table.index.to_frame(index=False)[names]
    several = [name for name in names if name in VARIANTS]
    if len(several) > 1:
        words = [", ".join(describe_variant(row, several)) or ABSENT for row in index.to_dict("records")]
        index = index.assign(**{several[0]: words}).rename(columns={several[0]: "variant"}).drop(columns=several[1:])
    cells = table.reset_index(drop=True).map(lambda value: ABSENT if pd.isna(value) else str(value))
    cells = pd.concat([index.map(escape), cells], axis=1).map(_keep_in_cell).rename(columns=_keep_in_cell)
    long = [cells.iloc[:, number].str.len().max() > LONG_CELL for number in range(cells.shape[1])]
    align = ["left" if number < index.shape[1] or long[number] else "right" for number in range(cells.shape[1])]
    return cells.to_markdown(index=False, disable_numparse=True, colalign=align) if len(cells) else "(no rows)"


def escape(text: object) -> str:
    """Text in which Markdown, with pandoc's extensions, reads no sign of its own; one line."""
    line = re.sub("[&<>|$~^]", lambda sign: f"&#{ord(sign[0])};", " ".join(str(text).split()))
    return re.sub(r"[\\`*\[\]]|(?<!\w)_|_(?!\w)", r"\\\g<0>", line)


def write_code(text: object) -> str:
    """Text as a code span in one line, whatever backticks are in it."""
    line = " ".join(str(text).split())
    fence = "`" * (max(map(len, re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


def _keep_in_cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(str(text).split()))


def _label(key: str) -> str:
    return "context" if key == "context_length" else key


NUMBERS = {
    "number": write_number, "amount": write_amount, "percent": write_percent, "points": write_points,
    "size": write_size, "rate": write_rate,
}  # fmt: skip
