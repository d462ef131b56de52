"""The tables of the page as data: columns with their meanings, and rows of plain values."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from itertools import accumulate

import numpy as np
import pandas as pd

from kernel_tables.page import markup, timeline
from profile_grid.figures.run_selection import with_dimensions
from profile_grid.quantities import known
from profile_grid.study.catalogue import QUESTIONS, Question, table_names_of
from profile_grid.study.dimensions import BY_KEY, EVERY_DIMENSION, KEYS_WITHOUT_DEFAULT, LEADING, OPERATOR_DIMENSIONS
from profile_grid.study.stages import NOT_ASKED, STAGES
from profile_grid.study.table_spec import SHARE, TEXT, Column, PageTable, TableSpec
from profile_grid.tables import on_disk, per_pass, pivoting

SIGNIFICANT_DIGITS = 6
DIMENSION_KEYS = tuple(dimension.key for dimension in EVERY_DIMENSION)
UNITS = {"ms": "ms", "us": "µs", "s": "s", "bytes": "GiB"}  # shown, by the end of a column's name
RUN_COLUMNS = (
    *(dimension.key for dimension in OPERATOR_DIMENSIONS), *(stage.status_column for stage in STAGES), "reason",
    "parameters", "peak_allocated_bytes", "steps_timed", "steps_captured", "note",
)  # fmt: skip
HEADINGS = {dimension.key: dimension.heading for dimension in EVERY_DIMENSION} | {
    "flop_per_s": "FLOP/s",
    "flops_formula": "FLOP, formula",
}
STATIC_ROWS = 8  # that are shown if scripts do not run
MAX_ROWS, MAX_BYTES = 3500, 3_200_000  # of one table; of all tables together. Their files have everything


def names_that_fit(sizes: Mapping[str, int], room: int) -> set[str]:
    """The names of the items that fit into the room together if the smallest are taken first."""
    names, used = set(), 0
    for name in sorted(sizes, key=sizes.__getitem__):
        used += sizes[name]
        if used <= room:
            names.add(name)
    return names


def divided_room(sizes: Mapping[str, int], room: int) -> dict[str, int]:
    """The room of each item: equal shares; what a small item does not need goes to the larger ones."""
    shares, remaining = {}, room
    for position, name in enumerate(sorted(sizes, key=sizes.__getitem__)):
        shares[name] = min(sizes[name], remaining // (len(sizes) - position))
        remaining -= shares[name]
    return shares


def rounded(value: float) -> float | int:
    """The number with SIGNIFICANT_DIGITS; an int if it is whole, which is shorter in JSON."""
    number = float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    return int(number) if number.is_integer() else number


@dataclass(frozen=True)
class RenderedColumn:
    name: str  # its key in the data
    title: str
    help: str  # what it means
    kind: str  # how its values are shown: text, number, plain (a number as it is), share, flag, kernel


@dataclass(frozen=True)
class RenderedTable:
    """One table of the page. Columns of kernels hold indices into the page's list of names."""

    name: str
    title: str
    path: str  # of the file with all rows, relative to the page
    columns: tuple[RenderedColumn, ...]
    rows: tuple[tuple, ...]
    left_out: int = 0  # rows that are not on the page

    def as_data(self) -> dict:
        """The table in the form that the page's script reads."""
        return {"columns": [asdict(column) for column in self.columns], "rows": self.rows}


def page_tables(
    tables: dict[str, pd.DataFrame], names: timeline.Names, questions: Iterable[Question] = QUESTIONS
) -> dict[str, RenderedTable]:
    """By name, the tables of these questions and those of runs and kernels, if this grid has them."""
    dimensions = pivoting.shown_dimensions(tables["runs"], KEYS_WITHOUT_DEFAULT)
    rendered, sources = {}, table_names_of(tables["runs"].to_dict("records"))
    for name, table in every_table(questions).items():
        if table.source not in sources:
            continue
        rows = table.select(tables[table.source]) if table.select else tables[table.source]
        shown = _shown_columns(rows, tables["runs"], dimensions, table.columns)
        rendered[name] = page_table(table, shown, names, on_disk.declared_tables()[table.source])
    return _within_room(rendered)


def every_table(questions: Iterable[Question] = QUESTIONS) -> dict[str, PageTable]:
    """The tables of the page by name, in the order of the page."""
    question_tables = [table for question in questions for table in tables_with(question)]
    return {table.name: table for table in (RUNS, *question_tables, KERNELS)}


def tables_with(question: Question) -> tuple[PageTable, ...]:
    """The tables that the page shows together with a question."""
    return import_module(f"{question.package}.table").PAGE_TABLES if question.tables else ()


def kernels_per_step(kernels: pd.DataFrame) -> pd.DataFrame:
    """One row per run, phase and kernel: launches and GPU time per measured step, longest first within a run."""
    measured = kernels[kernels["step"] >= 0]
    steps = measured.groupby("run", observed=True)["step"].nunique()
    keys = ["run", "phase", "kernel", "class"]
    table = measured.groupby(keys, sort=False, observed=True)[["launches", "total_ns"]].sum().reset_index()
    table = table.astype(dict.fromkeys(keys, "str"))
    step_count = table["run"].map(steps).astype("float64")  # without kernels it would have no type
    table = table.assign(launches=table["launches"] / step_count, gpu_time_ms=table["total_ns"] / 1e6 / step_count)
    ordered = per_pass.in_order_of(table, kernels["run"].unique(), "total_ns", largest_first="total_ns")
    return ordered.drop(columns="total_ns")


RUNS = PageTable("runs", "What ran", RUN_COLUMNS)
KERNELS = PageTable("kernels", "Every kernel by phase, per step", select=kernels_per_step)


def _shown_columns(
    frame: pd.DataFrame, runs: pd.DataFrame, dimensions: list[str], chosen: tuple[str, ...] | None
) -> pd.DataFrame:
    """The rows of `frame` in their order, with the columns `dimensions`, then the chosen ones, by default all. Left out
    are columns of dimensions without values, and of the status of stages that were requested for no run."""
    columns = list(chosen) if chosen else [name for name in frame.columns if name not in LEADING]
    columns = [name for name in columns if name not in DIMENSION_KEYS or frame[name].notna().any()]
    columns = [name for name in columns if not len(frame) or not frame[name].eq(NOT_ASKED).all()]
    numbered_rows = frame[["run", *columns]].reset_index(drop=True).reset_index(names="_position")
    return with_dimensions(numbered_rows, runs).sort_values("_position", ignore_index=True)[[*dimensions, *columns]]


def page_table(table: PageTable, rows: pd.DataFrame, names: timeline.Names, declared: TableSpec) -> RenderedTable:
    """These rows as a table of the page. `declared` has the meanings and units of the columns."""
    shown = rows.head(MAX_ROWS)
    # Columns that `select` of the table has added are not declared.
    declared_columns = {column.name: column for column in declared.all_columns}
    shown_columns = [declared_columns.get(name, Column(name, TEXT, "", "")) for name in shown.columns]
    kinds = {column.name: _kind(column, shown[column.name]) for column in shown_columns}
    columns = tuple(
        RenderedColumn(column.name, _heading(column.name), column.meaning, kinds[column.name])
        for column in shown_columns
    )
    values = {name: [_value(value, kind, names) for value in shown[name]] for name, kind in kinds.items()}
    scaled = [_in_gibibytes(cells) if name.endswith("_bytes") else cells for name, cells in values.items()]
    values_by_row = tuple(zip(*scaled, strict=True))
    path = f"tables/{table.source}.csv"
    return RenderedTable(table.name, table.title, path, columns, values_by_row, len(rows) - len(shown))


def _within_room(tables: dict[str, RenderedTable]) -> dict[str, RenderedTable]:
    """The tables, cut to the first rows for which all tables together have room."""
    row_ends = {}  # by table, for each row, the bytes of all rows up to the end of this one
    for name, table in tables.items():
        row_ends[name] = list(accumulate(len(markup.for_script(row)) + 1 for row in table.rows))
    rooms = divided_room({name: max(ends, default=0) for name, ends in row_ends.items()}, MAX_BYTES)
    cut = {}
    for name, table in tables.items():
        count = bisect_right(row_ends[name], rooms[name])
        cut[name] = replace(table, rows=table.rows[:count], left_out=table.left_out + len(table.rows) - count)
    return cut


def _kind(column: Column, values: pd.Series) -> str:
    if column.name == "kernel":
        return "kernel"
    if column.unit == SHARE:
        return "share"
    present = [value for value in values if known(value)]
    if present and all(isinstance(value, (bool, np.bool_)) for value in present) and column.name not in BY_KEY:
        return "flag"
    if present and all(_is_number(value) for value in present):
        return "plain" if column.name in BY_KEY else "number"
    return "text"


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) or hasattr(value, "dtype")


def _value(value, kind: str, names: timeline.Names):
    if not known(value):
        return None
    if kind == "kernel":
        return names.kernel(value)
    if kind == "flag":
        return "yes" if value else "no"
    return rounded(float(value)) if kind in ("number", "share", "plain") else str(value)


def _in_gibibytes(values: list) -> list:
    return [None if value is None else round(value / 2**30, 3) for value in values]


def _heading(column: str) -> str:
    if column in HEADINGS:
        return HEADINGS[column]
    stem, _, unit = column.rpartition("_")
    if stem and unit in UNITS:
        return f"{stem.replace('_', ' ')} ({UNITS[unit]})"
    return column.replace("_", " ")
