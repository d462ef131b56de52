"""The tables of the page as data: columns with what they hold, and rows of plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pandas as pd

from profile_grid.documents.dictionary import described
from profile_grid.page.names import Names
from profile_grid.quantities import known
from profile_grid.study.described import LEADING_COLUMNS
from profile_grid.study.dimensions import KEYS, LEADING
from profile_grid.tables.apart import shown_dimensions
from profile_grid.tables.names import ALL_PHASES, FORWARD, FORWARD_OTHERS

SIGNIFICANT = 6
UNITS = {"ms": "ms", "us": "µs", "s": "s", "bytes": "GiB"}
SHARES = ("share", "share_of_step", "other_share", "share_of_others", "idle_share")
PLAIN = ("context_length",)
RUN_COLUMNS = [
    *KEYS, "timing_status", "capture_status", "reason", "parameters",
    "peak_allocated_bytes", "steps_timed", "steps_captured", "note",
]  # fmt: skip
FORWARD_COLUMNS = [
    *KEYS, "timing_status", "capture_status", "unprofiled_step_ms",
    "unprofiled_step_std_ms", "step_wall_ms", "step_wall_std_ms", "overhead_ratio", "matches_python",
    "forward_wall_ms", "forward_gpu_span_ms", "forward_gpu_busy_ms", "forward_kernels", "mean_kernel_us", "idle_share",
]  # fmt: skip
HEADINGS = {"context_length": "context", "flop_per_s": "FLOP/s", "flops_formula": "FLOP, formula"}
STATIC_ROWS = 8
ALWAYS_SHOWN = ("model", "context_length", "mode")  # another dimension has a column where a run is not at its default


@dataclass(frozen=True)
class PageColumn:
    """One column: its key in the data, heading, what it means, and how its values are shown (text, number, ...)."""

    name: str
    title: str
    help: str
    kind: str


@dataclass(frozen=True)
class PageTable:
    """One table of the page; kernel columns hold numbers into the page's list of names."""

    name: str
    title: str
    source: str
    columns: tuple[PageColumn, ...]
    rows: tuple[tuple, ...]

    def as_data(self) -> dict:
        """What the page's script reads."""
        return {"columns": [asdict(column) for column in self.columns], "rows": self.rows}


def page_tables(tables: dict[str, pd.DataFrame], names: Names) -> dict[str, PageTable]:
    """The tables by name."""
    top = tables["top_kernels"]
    chosen = {
        "runs": ("What ran", tables["runs"], "runs", RUN_COLUMNS),
        "forward_time": ("The forward pass, profiled and not", tables["forward_time"], "forward_time", FORWARD_COLUMNS),
        "timings": ("Every phase without a profiler", tables["timings"], "timings", None),
        "top_kernels": (
            "The kernels with the most time, by rank",
            top[top["scope"].isin([FORWARD, ALL_PHASES])], "top_kernels", None,
        ),
        "other_kernels": (
            "The longest kernels that are no matrix multiplies",
            top[top["scope"] == FORWARD_OTHERS].drop(columns=["scope", "same_as_forward"]), "top_kernels", None,
        ),
        "forward_classes": ("Classes in the forward pass", tables["forward_classes"], "forward_classes", None),
        "forward_parts": ("Parts of the model in the forward pass", tables["forward_parts"], "forward_parts", None),
        "class_shares": ("Classes by phase", tables["class_shares"], "class_shares", None),
        "attention": ("Attention by part", tables["attention"], "attention", None),
        "kernels": ("Every kernel by phase, per step", kernels_per_step(tables["kernels"]), "kernels", None),
    }  # fmt: skip
    shown = shown_dimensions(tables["runs"], ALWAYS_SHOWN)
    hidden = {"run", *KEYS} - set(shown)
    return {
        name: _page_table(name, title, frame[[c for c in columns or frame.columns if c not in hidden]], source, names)
        for name, (title, frame, source, columns) in chosen.items()
    }


def kernels_per_step(kernels: pd.DataFrame) -> pd.DataFrame:
    """One row per run, phase and kernel: launches and GPU time per measured step, longest first within a run."""
    measured = kernels[kernels["step"] >= 0]
    steps = measured.groupby("run")["step"].nunique()
    keys = [*LEADING, "phase", "kernel", "class"]
    table = measured.groupby(keys, sort=False)[["launches", "total_ns"]].sum().reset_index()
    count = table["run"].map(steps).astype("float64")  # without kernels there is nothing to tell its type from
    table = table.assign(launches=table["launches"] / count, gpu_time_ms=table["total_ns"] / 1e6 / count)
    order = {run: position for position, run in enumerate(dict.fromkeys(kernels["run"]))}
    table = table.assign(_run=table["run"].map(order).astype("float64")).sort_values(
        ["_run", "total_ns"], ascending=[True, False]
    )
    return table.drop(columns=["_run", "total_ns"])


def _page_table(name: str, title: str, frame: pd.DataFrame, source: str, names: Names) -> PageTable:
    meanings = {column.name: column.meaning for column in (*LEADING_COLUMNS, *described()[source].columns)}
    kinds = {column: _kind(column, frame[column]) for column in frame.columns}
    columns = tuple(
        PageColumn(column, _heading(column), meanings.get(column, ""), kind) for column, kind in kinds.items()
    )
    values = [[_value(value, kind, names) for value in frame[column]] for column, kind in kinds.items()]
    scaled = [_in_gibibytes(of) if column.endswith("_bytes") else of for column, of in zip(kinds, values, strict=True)]
    return PageTable(name, title, f"results/tables/{source}.csv", columns, tuple(zip(*scaled, strict=True)))


def _kind(column: str, values: pd.Series) -> str:
    if column == "kernel":
        return "kernel"
    if column in SHARES:
        return "share"
    if column in PLAIN:
        return "plain"
    present = [value for value in values if known(value)]
    if present and all(isinstance(value, bool) or type(value).__name__ == "bool" for value in present):
        return "flag"
    return "number" if present and all(_is_number(value) for value in present) else "text"


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) or hasattr(value, "dtype")


def _value(value, kind: str, names: Names):
    if not known(value):
        return None
    if kind == "kernel":
        return names.number(value)
    if kind == "flag":
        return "yes" if value else "no"
    if kind in ("number", "share", "plain"):
        number = float(f"{float(value):.{SIGNIFICANT}g}")
        return int(number) if number.is_integer() else number
    return str(value)


def _in_gibibytes(values: list) -> list:
    return [None if value is None else round(value / 2**30, 3) for value in values]


def _heading(column: str) -> str:
    if column in HEADINGS:
        return HEADINGS[column]
    stem, _, unit = column.rpartition("_")
    if stem and unit in UNITS:
        return f"{stem.replace('_', ' ')} ({UNITS[unit]})"
    return column.replace("_", " ")
