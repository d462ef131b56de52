"""results/report.html of an attention sweep: its sentences, figure and tables in one file that needs no network."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from kernel_tables.page.markup import script, style
from kernel_tables.page.names import Names
from profile_grid import page as of_studies
from profile_grid.figures.shown import of_one_machine
from profile_grid.page import libraries
from profile_grid.page.charts import shown
from profile_grid.page.filters import Menu
from profile_grid.page.tables import STATIC_ROWS, RenderedTable, page_table
from profile_grid.study.sweep_dimensions import ATTENTION_SWEEP, SWEEP_ROWS
from profile_grid.study.table_spec import PageTable
from profile_grid.sweep.dictionary import TABLES
from profile_grid.sweep.figure import SWEEP
from profile_grid.sweep.sentences import sentences
from profile_grid.tables.machines import by_machine

HERE = Path(__file__).parent
MENUS = {
    "head_dim": "d", "context_length": "context length", "precision": "precision", "batch_size": "batch size",
    "variant": "variant",
}  # fmt: skip
CELLS = PageTable(
    ATTENTION_SWEEP, "Forward and backward pass of every cell",
    (
        *MENUS, "status", "reason", "forward_ms", "forward_std_ms", "backward_ms", "backward_std_ms",
        "memory_before_backward_bytes", "peak_bytes", "compile_s", "forward_speed_up", "backward_speed_up",
        "ideal_forward_ms",
    ),
)  # fmt: skip
ROWS = PageTable(SWEEP_ROWS, "What ran", ("run", "cells", "device_name", "device_total_bytes", "seconds", "note"))


def page(cells: pd.DataFrame, rows: pd.DataFrame, provenance: dict, image: bytes) -> str:
    """The page, from the tables of cells and of rows; `image` is the figure as PNG."""
    by_name = {ATTENTION_SWEEP: cells, SWEEP_ROWS: rows}
    of_machine, machine, left_out = of_one_machine({"runs": rows, ATTENTION_SWEEP: cells})
    names = Names()
    tables = {one.source: _table(one, by_name[one.source], names) for one in (CELLS, ROWS)}
    return of_studies.environment(HERE).get_template("page.html.j2").render(
        sections=[(one, sentences(cells[cells["run"].isin(own)])) for one, own in by_machine(rows)],
        machine=machine,
        provenance=provenance,
        menus=menus(cells),
        tables=tables,
        static_rows=STATIC_ROWS,
        figures=shown({ATTENTION_SWEEP: SWEEP}, of_machine, {ATTENTION_SWEEP: image}, left_out),
        data={name: table.as_data() for name, table in tables.items()},
        names=names.as_lists(),
        libraries=libraries,
        style=style(of_studies.HERE / "grid.css"),
        script=script(of_studies.HERE / "page.js"),
    )  # fmt: skip


def menus(cells: pd.DataFrame) -> list[Menu]:
    """A menu per dimension in which the cells differ, and one of variants."""
    found = {name: sorted(set(cells[name])) if name != "variant" else dict.fromkeys(cells[name]) for name in MENUS}
    return [
        Menu(name, MENUS[name], tuple((str(value), str(value)) for value in values))
        for name, values in found.items()
        if len(values) > 1
    ]


def _table(shown: PageTable, table: pd.DataFrame, names: Names) -> RenderedTable:
    return page_table(shown, table[list(shown.columns)], names, TABLES[shown.source])
