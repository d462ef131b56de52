"""From tables to Markdown: the Jinja environment in which every document is written.

    environment(tables).get_template("compare.md.j2").render(times=frame)

Templates get tables and words as globals, and the filters below, whose functions say what they do. A filter that writes
a number also takes a column or frame, which becomes one of texts. What is missing is "–".
"""

import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import jinja2
import pandas as pd

from kernel_tables.names import short_names
from kernel_tables.output import code, escaped, percent
from workflow.grid import KEYS, Run
from workflow.peaks import peak_flop_per_s
from workflow.tables import sort_runs

ABSENT = "–"
LONG_CELL = 30  # characters, from which a column is read as text and aligned on the left
TEMPLATES = Path(__file__).parent / "templates"
VARIANTS = KEYS[3:]  # without model, context_length and mode
DEFAULTS = {key: str(getattr(Run(), key)) for key in VARIANTS if key != "batch_size"}  # that has no usual one
VARIANT_WORDS = {  # what is said of a value that is no default
    "batch_size": "batch {}", "compile": "compiled {}", "attention": "{} attention", "checkpoint": "checkpoint {}",
    "gpus": "{} GPUs", "optimizer": "{} optimizer", "precision": "{}", "parallel": "{}",
}  # fmt: skip
MODES = {"forward": "forward pass", "forward_backward": "forward + backward", "train_step": "training step"}


def environment(tables: dict[str, pd.DataFrame]) -> jinja2.Environment:
    runs = tables["runs"][tables["runs"]["mode"].isin(list(MODES))]  # attention alone has no mode
    modes = choose_modes(runs) or ["forward"]
    quoted = list_quoted(tables, runs, modes[0])
    on_gpu = "cuda" in set(tables["runs"]["device"])
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, extensions=["jinja2.ext.do"],
    )  # fmt: skip
    made.filters |= {
        **{name: partial(write_each, write) for name, write in (NUMBERS | {"escape": escaped, "code": code}).items()},
        "spread": write_spread, "range": write_range, "count": write_count, "largest": list_largest,
        "middle": find_middle, "by": spread_columns, "markdown": write_markdown,
        "select": lambda table, mode: select(table, runs, mode),
        "typical": lambda rows, column: find_typical(rows, column, quoted),
        "filled": lambda texts, mode: fill_with_status(texts, runs, mode),
        "short": lambda names: shorten(names, tables.get("top_kernels")),
    }  # fmt: skip
    made.globals |= {
        "tables": tables,
        "runs": tables["runs"],
        "inference": modes[0],  # the modes that stand for both
        "training": modes[-1],
        "on_gpu": on_gpu,
        "kernel": "kernel" if on_gpu else "operator",
        "gpu_time": "GPU time" if on_gpu else "operator time",
        "machine": describe_machine(tables["runs"]),
        "grid_words": describe_grid(runs),
        "quoted": describe_run(runs, quoted[0]).partition(", ")[0] if quoted else None,
        "columns": lambda *parts: order_rows(pd.DataFrame(dict(pair for part in parts for pair in part.items())), runs),
        "describe": lambda run: describe_run(tables["runs"], run),
        "mode_name": lambda mode: MODES.get(mode, mode),
        "peak_flop_per_s": peak_flop_per_s,
    }
    made.globals["gained"] = made.get_template("macros.md.j2").module.gained
    return made


def choose_modes(rows: pd.DataFrame) -> list[str]:
    """Inference and training: the modes with the fewest and with the most phases that there are."""
    modes = [mode for mode in MODES if mode in set(rows["mode"])]
    return list(dict.fromkeys([*modes[:1], *modes[-1:]]))


def index_runs(runs: pd.DataFrame) -> pd.MultiIndex:
    """What tells the runs of a mode apart: model, context, and what else has several values."""
    keys = ["model", "context", *(key for key in VARIANTS if runs[key].nunique() > 1)]
    return pd.MultiIndex.from_frame(runs.rename(columns={"context_length": "context"})[keys])


def select(table: pd.DataFrame, runs: pd.DataFrame, mode: str) -> pd.DataFrame:
    """The rows of a mode in the order of `runs`, by index_runs: columns of two such tables can be divided."""
    rows = sort_runs(table[(table["mode"] == mode) & table["run"].isin(runs["run"])], runs)
    return rows.set_axis(index_runs(runs).take(pd.Index(runs["run"]).get_indexer(rows["run"])))


def order_rows(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """A frame of selected rows in the order of the grid, since pandas sorts where indices differ."""
    order = index_runs(runs).drop_duplicates()
    return table.reindex(order[order.isin(table.index)]) if table.index.names == order.names else table


def fill_with_status(texts: pd.Series, runs: pd.DataFrame, mode: str) -> pd.Series:
    """The texts with a row for every run of a mode: where there is none, the status of its capture or timing."""
    index = select(runs, runs, mode)
    failed = index["capture_status"].where(index["capture_status"] != "complete", index["timing_status"])
    words = failed.replace({"out_of_memory": "OOM", "complete": ABSENT}).str.replace("_", " ")
    return texts.where(texts != ABSENT).reindex(index.index).fillna(words)


def describe_machine(runs: pd.DataFrame) -> str:
    """What was measured with, as a sentence; several values of one fact are all named."""
    facts = {"": "device_name", "driver ": "driver", "CUDA ": "cuda", "PyTorch ": "torch", "Nsight Systems ": "nsys"}
    values = {label: runs[name].dropna().unique() for label, name in facts.items() if name in runs}
    texts = [label + " and ".join(map(str, known)) for label, known in values.items() if len(known)]
    texts += ["PyTorch's own profiler"] * ("torch" in set(runs["backend"]))
    return f"Measured on {escaped(', '.join(texts))}."


def describe_run(runs: pd.DataFrame, run: str) -> str:
    """A run in words: "10B at context 512, training step, bf16", with what is not the default of the grid; escaped."""
    row = runs.set_index("run").loc[run]
    if row["mode"] not in MODES:
        return escaped(run)
    variant = describe_variant(row, index_runs(runs).names[2:])
    return escaped(", ".join([f"{row['model']} at context {row['context_length']}", MODES[row["mode"]], *variant]))


def describe_variant(row: dict | pd.Series, keys: Iterable[str]) -> list[str]:
    """The values of these dimensions in words, without defaults: "bf16", "flash attention", "2 GPUs", "ddp"."""
    values = {key: str(row[key]) for key in keys if str(row[key]) != DEFAULTS.get(key)}
    texts = (VARIANT_WORDS.get(key, key.replace("_", " ") + " {}").format(value) for key, value in values.items())
    return [text.removesuffix(" on") for text in texts]  # "compiled on" is the whole


def describe_grid(runs: pd.DataFrame) -> str:
    """The values of the grid's dimensions in words, without options at their defaults; escaped."""
    options = [key for key in VARIANTS if key == "precision" or set(runs[key].astype("str")) != {DEFAULTS.get(key)}]
    keys = ["model", "context_length", "mode", *options]
    values = {key.replace("_", " "): list(dict.fromkeys(runs[key])) for key in keys}
    values["mode"] = [MODES[mode] for mode in values["mode"]]
    return escaped("; ".join(f"{key} {', '.join(map(str, some))}" for key, some in values.items() if some))


def list_missing(runs: pd.DataFrame) -> list[str]:
    """What was asked for and not measured, a line each with the reason."""
    lines = []
    for row in runs.to_dict("records"):
        stages = {name.removesuffix("_status"): row[name] for name in runs if name.endswith("_status")}
        stages = {stage: why for stage, why in stages.items() if why != "not_asked" and not pd.isna(why)}
        for status in dict.fromkeys(why for why in stages.values() if why != "complete"):
            names = [stage for stage, why in stages.items() if why == status]
            some = f" ({', '.join(names)})" if len(names) < len(stages) else ""
            text = status.replace("_", " ")
            if status == "out_of_memory" and not pd.isna(row["oom_requested_bytes"]):
                requested, total = write_size(row["oom_requested_bytes"]), write_size(row["oom_total_bytes"])
                during = row["oom_during"].replace("initialise", "initialization").replace("_", " ")
                during = re.sub(r"(.*) step (\d+): (.*)", r"\3 of \1 step \2", during)
                text += f" in {during}, where {requested} more were requested, on a GPU of {total}"
            elif not pd.isna(row["reason"]):
                text += f": {row['reason']}"
            lines.append(f"{describe_run(runs, row['run'])}{some}: {escaped(text)}")
    return lines


def write_each(write: Callable, value, *arguments):
    """A text from a value, or from each of a column or frame; "–" if there is none."""
    if isinstance(value, pd.DataFrame | pd.Series):
        return value.map(lambda one: write_each(write, one, *arguments)).astype("object")
    return ABSENT if pd.isna(value) else write(value, *arguments)


def write_number(value: float, digits: int = 3) -> str:
    """A number with at least this many significant digits and no exponent: 1234 stays 1234, 0.012345 is 0.0123."""
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2]) if value else digits - 1
    return f"{value:.{max(0, digits - 1 - exponent)}f}".replace("-", "−")


def write_amount(count: float) -> str:
    """A number of things, which is whole if all steps are the same."""
    return f"{count:,.1f}".removesuffix(".0")


def write_size(count: float) -> str:
    """Bytes in GiB with one decimal, in MiB or KiB below one of these."""
    for unit, name, decimals in ((2**30, "GiB", 1), (2**20, "MiB", 0), (2**10, "KiB", 0)):
        if abs(count) >= unit:
            return f"{count / unit:,.{decimals}f} {name}"
    return f"{count:,.0f} B"


def write_rate(flop_per_s: float) -> str:
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if flop_per_s >= factor:
            return f"{write_number(flop_per_s / factor)} {prefix}FLOP/s"
    return f"{write_number(flop_per_s)} FLOP/s"


def write_spread(mean, std):
    """A mean and its standard deviation, which gets one digit, two if the first is 1: "12.3 ± 0.4"."""
    if isinstance(mean, pd.Series):
        return pd.Series(list(map(write_spread, mean, std)), mean.index, dtype="object")
    if pd.isna(mean) or pd.isna(std) or std <= 0:
        return write_each(write_number, mean)
    digit, _, exponent = f"{std:.0e}".partition("e")
    decimals = min(6, max(0, (digit == "1") - int(exponent)))
    return f"{mean:.{decimals}f} ± {std:.{decimals}f}"


def write_range(values: pd.Series, kind: str = "number", unit: str = "") -> str:
    """The smallest to the largest of several numbers: "8.24 to 727 ms"."""
    low, high = (write_each(NUMBERS[kind], value) for value in (values.min(), values.max()))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def write_count(truths: pd.Series, noun: str = "run") -> str:
    """In how many runs something is true: "17 of 20 runs", "all 20 runs", "both runs", "the only run"."""
    total, count = len(truths), int(truths.sum())
    if total == 1:
        return f"the only {noun}" if count else f"none of 1 {noun}"
    if count == total:
        return f"both {noun}s" if total == 2 else f"all {total} {noun}s"
    return f"{f'{count} of' if count else 'none of'} {total} {noun}s"


def list_largest(rows: pd.DataFrame, name: str, share: str, count: int, form: str = "{} {}") -> pd.Series:
    """By run, the names with the largest shares, escaped, and these: "rope 7.2 %, norm 6.3 %"."""
    rows = rows[rows[share] > 0].sort_values(share, ascending=False, kind="stable")
    cells = map(form.format, rows[name].map(escaped), rows[share].map(percent))
    texts = pd.Series(list(cells), rows.index, dtype="object")  # Series.combine of pandas 3.0 mixes rows of one run
    return texts.groupby(level=rows.index.names, sort=False).agg(lambda group: ", ".join(group[:count]))


def find_middle(rows: pd.DataFrame, column: str) -> pd.Series:
    """The row with the median of a column, the lower of two, of those that prefer_defaults gives."""
    known = prefer_defaults(rows[rows[column].notna()]).sort_values(column, kind="stable")
    return known.iloc[(len(known) - 1) // 2]


def list_quoted(tables: dict[str, pd.DataFrame], runs: pd.DataFrame, mode: str) -> list[str]:
    """The runs that answers quote, in every mode: of the configuration with the median time of a forward pass."""
    times = tables.get("forward_time", pd.DataFrame(columns=["mode", "run", "unprofiled_step_ms"]))
    times = times[(times["mode"] == mode) & times["unprofiled_step_ms"].notna()]
    if times.empty or len(runs) == 1:
        return []
    median, keys = find_middle(times, "unprofiled_step_ms")["run"], index_runs(runs)
    return list(runs["run"][keys == keys[list(runs["run"]).index(median)]])


def find_typical(rows: pd.DataFrame, column: str, quoted: list[str]) -> pd.Series:
    """The row of a quoted run; if none has the column, the one with its median."""
    some = rows[rows["run"].isin(quoted) & rows[column].notna()]
    return find_middle(rows if some.empty else some, column)


def prefer_defaults(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of runs with every dimension at its default; all, if there is none."""
    values = rows.reindex(columns=list(DEFAULTS)).astype("str")
    plain = rows[(values == pd.Series(DEFAULTS)).all(axis=1)]
    return rows if plain.empty else plain


def shorten(names: pd.Series, top_kernels: pd.DataFrame | None) -> pd.Series:
    """The short names of kernels; the same in all documents, since those of `top_kernels` are told apart, too."""
    others = [] if top_kernels is None else list(top_kernels["kernel"].unique())
    return names.map(short_names([*others, *names.unique()])).astype("object")


def spread_columns(rows: pd.Series, name: str) -> pd.DataFrame:
    """A column per value of a level of the index; rows and columns in their order."""
    others = [key for key in rows.index.names if key != name]
    index = rows.index.droplevel(name).unique()
    table = rows.unstack(name)[rows.index.get_level_values(name).unique()].reindex(index).rename_axis(others)
    return table.rename(columns=escaped)


def write_markdown(table: pd.DataFrame) -> str:
    """A Markdown table that no text breaks; on the left the index, without dimensions that have one value."""
    index = table.index.to_frame(index=False)
    index = index[[name for name in index if name not in VARIANTS or index[name].nunique() > 1]]
    cells = table.reset_index(drop=True).map(lambda value: ABSENT if pd.isna(value) else str(value))
    cells = pd.concat([index.map(escaped), cells], axis=1).map(_keep_in_cell).rename(columns=_keep_in_cell)
    long = [cells.iloc[:, number].str.len().max() > LONG_CELL for number in range(cells.shape[1])]
    align = ["left" if number < index.shape[1] or long[number] else "right" for number in range(cells.shape[1])]
    return cells.to_markdown(index=False, disable_numparse=True, colalign=align) if len(cells) else "(no rows)"


def _keep_in_cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(str(text).split()))


NUMBERS = {
    "number": write_number, "amount": write_amount, "percent": percent, "size": write_size, "rate": write_rate,
}  # fmt: skip
