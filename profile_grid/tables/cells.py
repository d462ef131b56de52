"""The tables of the documents: a line per run, or per row of a DataFrame, which begins with its dimensions; a status
replaces missing results. `lines_table` is the general one; `rows_table` gets a function per column, `run_table` the
cells of each run."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pandas as pd

from kernel_tables.markdown import MarkdownTable, escaped
from profile_grid.quantities import ABSENT, known, scientific, yes_or_no
from profile_grid.results.results import COMPLETE, OUT_OF_MEMORY
from profile_grid.study.dimensions import BY_KEY, CONTEXT_LENGTH, MODE, MODEL
from profile_grid.study.stages import CAPTURE
from profile_grid.tables import classes, pivoting
from profile_grid.tables.measured import Measured
from profile_grid.tables.wording import run_in_words

STATUS_WORDS = {OUT_OF_MEMORY: "OOM"}  # other statuses are written as they are
NOT_IN_GRID = "not run"
MODEL_AND_CONTEXT = (MODEL.key, CONTEXT_LENGTH.key)
Part = str | tuple[str, MarkdownTable | None]  # a part of a document: a paragraph, or (introduction, table)
Column = tuple[str, Callable[[dict], str]]  # heading, text of a row


def run_table(
    measured: Measured, headings: tuple[str, ...], cells_by_run: dict[str, tuple[str, ...]], mode: str | None = None,
    left_aligned: int = 0,
) -> MarkdownTable:  # fmt: skip
    """One line per run of a mode (by default inference): its dimensions, then its cells or its status."""

    def run_cells(row: dict) -> tuple[str, ...]:
        if row["run"] in cells_by_run or not headings:
            return cells_by_run.get(row["run"], ())
        return (status_word(row[CAPTURE.status_column]), *[ABSENT] * (len(headings) - 1))

    runs = measured.runs[measured.runs[MODE.key] == (mode or measured.inference_mode)]
    return lines_table(runs, MODEL_AND_CONTEXT, headings, run_cells, left_aligned, hidden=(MODE.key,))


def rows_table(
    rows: pd.DataFrame, always_shown: Sequence[str], columns: Sequence[Column], left_aligned: int = 0
) -> MarkdownTable:
    """One line per row: its dimensions, then the text of each column. The other arguments are those of lines_table."""
    headings, texts = [heading for heading, _ in columns], [text for _, text in columns]
    return lines_table(rows, always_shown, headings, lambda row: [text(row) for text in texts], left_aligned)


def columns_with_values(rows: pd.DataFrame, headings: Mapping[str, str], text: Callable[[float], str]) -> list[Column]:
    """The columns of `rows` in `headings`, with these headings, for `rows_table`; not those without any value."""

    def cell(name: str) -> Callable[[dict], str]:
        return lambda row: text(row[name]) if known(row[name]) else ABSENT

    return [(heading, cell(name)) for name, heading in headings.items() if rows[name].notna().any()]


def parts_table(rows: pd.DataFrame, largest_first: str, cell: Callable[[dict], str]) -> MarkdownTable:
    """One line per part of the model and one column per model; the part with the largest mean in the column
    `largest_first` comes first."""
    models = list(dict.fromkeys(rows[MODEL.key]))
    sizes_by_model = pivoting.pivoted(rows, ["part"], MODEL.key, [largest_first])[largest_first]
    parts = sizes_by_model.mean(axis=1).sort_values(ascending=False, kind="stable").index
    cells = {(row["part"], row[MODEL.key]): cell(row) for row in rows.to_dict("records")}
    lines = tuple((escaped(part), *(cells.get((part, model), ABSENT) for model in models)) for part in parts)
    return MarkdownTable(("part", *map(escaped, models)), lines, first_right=1)


def lines_table(
    rows: pd.DataFrame, always_shown: Sequence[str], headings: Sequence[str], cells: Callable[[dict], Iterable[str]],
    left_aligned: int = 0, hidden: Sequence[str] = (),
) -> MarkdownTable:  # fmt: skip
    """One line per row: its dimensions, then its cells. The first `left_aligned` cells are aligned on the left, the
    others on the right. `always_shown` and `hidden` are keys of dimensions, as for shown_dimensions."""
    keys = pivoting.shown_dimensions(rows, always_shown, hidden)
    lines = tuple((*leading_cells(row, keys), *cells(row)) for row in rows.to_dict("records"))
    return MarkdownTable((*headings_of(keys), *headings), lines, first_right=len(keys) + left_aligned)


def headings_of(keys: Sequence[str]) -> tuple[str, ...]:
    """The headings of these dimensions."""
    return tuple(BY_KEY[key].heading for key in keys)


def leading_cells(row: dict, keys: Sequence[str]) -> tuple[str, ...]:
    """The values of these dimensions in Markdown."""
    return tuple(escaped(BY_KEY[key].name_of(row[key])) for key in keys)


def titled(introduction: str, tables: Iterable[tuple[str, MarkdownTable]], form: str = "{}, {}") -> list[Part]:
    """The parts of a document with these tables and their titles. A title that is not empty follows the introduction,
    in this form."""
    return [(form.format(introduction, title) if title else introduction, table) for title, table in tables]


def table_per_run(
    introduction: str, rows: pd.DataFrame, table: Callable[[pd.DataFrame], MarkdownTable], always_named: Collection[str]
) -> list[Part]:  # fmt: skip
    """The parts of a document with a table of the rows of each run, below the introduction with the run in brackets.
    The dimensions `always_named` are named even at their defaults."""
    runs = (run_rows for _, run_rows in rows.groupby("run", sort=False))
    tables = ((run_in_words(run_rows.iloc[0], always_named), table(run_rows)) for run_rows in runs)
    return titled(introduction, tables, "{} ({})")


def text_or_status(text: str, status) -> str:
    """The text of a complete result; else its status."""
    return text if status == COMPLETE else status_word(status)


def status_word(status) -> str:
    """The status as the text of a cell that has no result to show."""
    return STATUS_WORDS.get(status, ABSENT if status == COMPLETE else escaped(str(status)))


def families_by_share(shares: pd.DataFrame) -> list[str]:
    """Matrix multiplies, if they have rows, then the other families (classes without refinement) whose mean share is
    not 0, the largest first."""
    means = shares.groupby("family")["share"].mean().sort_values(ascending=False)
    others = [family for family in means[means > 0].index if family != classes.MATMUL]
    return [classes.MATMUL, *others] if classes.MATMUL in means.index else others


def small_families_merged(shares: pd.DataFrame, columns: list[str], keys: list[str]) -> pd.DataFrame:
    """The shares, with all families below NON_TRIVIAL_SHARE everywhere as one family that has their names; unchanged if
    fewer than two of these have any share. Matrix multiplies always stay a family."""
    largest = shares.groupby("family")[columns].max().max(axis=1)
    small = [family for family in largest[largest < classes.NON_TRIVIAL_SHARE].index if family != classes.MATMUL]
    present = [family for family in small if largest[family] > 0]
    if len(present) < 2:
        return shares
    renamed = shares.assign(family=shares["family"].where(~shares["family"].isin(small), ", ".join(present)))
    return renamed.groupby([*keys, "family"], sort=False)[columns].sum().reset_index()


def errors_table(rows: pd.DataFrame, always_shown: Sequence[str]) -> MarkdownTable | None:
    """One line per run: the relative errors of loss, logits and gradients against a float64 reference, the largest
    error that rounding explains, and whether they may be rounding. None without errors. The dimensions in
    `always_shown` have a column in any case."""
    if rows["loss_error"].isna().all():
        return None
    return lines_table(
        rows,
        always_shown,
        ("loss", "logits", "norm of the gradients", "rounding, at most", "may be rounding"),
        _error_cells,
    )


def _error_cells(row: dict) -> list[str]:
    errors = [scientific(row[f"{name}_error"]) for name in ("loss", "logits", "gradient_norm", "explained")]
    may_be_rounding = row["within_precision"]
    return [*errors, "**no**" if known(may_be_rounding) and not may_be_rounding else yes_or_no(may_be_rounding)]
