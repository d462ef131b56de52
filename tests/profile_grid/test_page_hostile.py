"""The page in a real browser where counters and energy hold texts that are meant to break it."""

from pathlib import Path

import pandas as pd

from profile_grid.documents.summaries import summary_tables
from profile_grid.page import page
from profile_grid.study.catalogue import merged_names
from profile_grid.study.table_spec import LEADING_COLUMNS
from profile_grid.study.workloads import MODEL_STEPS
from profile_grid.tables.on_disk import TablesOnDisk, declared_tables
from tests.browser import needs_browser
from tests.profile_grid.test_page import PROVENANCE, made_up_timeline, start_everything

EXAMPLE = Path(__file__).parents[2] / "docs" / "example-h200"
HOSTILE = (
    "</script><script>window.taken=1</script><img src=x onerror='window.taken=2'>\x1b[31m\u202egnp\x01|$\\input{x}$"
)
FREE = (
    "kernel", "range", "message", "advice", "reason", "note", "device_name", "part", "because", "stall", "limited_by",
    "grid", "block", "counter",
)  # fmt: skip


def one_run() -> dict[str, pd.DataFrame]:
    """The tables of a run of the example with counters, and the energy of another run as its own."""
    counters, energy = tables_of("counters"), tables_of("energy")
    tables = {name: counters[name] for name in merged_names({MODEL_STEPS})}
    run = tables["runs"].iloc[0]
    tables = {name: table[table["run"] == run["run"]] for name, table in tables.items()}
    own = {column.name: run[column.name] for column in LEADING_COLUMNS}
    for name in ("energy", "energy_windows"):
        rows = energy[name]
        tables[name] = rows[rows["run"] == rows["run"].iloc[0]].assign(**own)
    tables["runs"] = tables["runs"].assign(energy_status="complete")
    return tables | summary_tables(tables)


def tables_of(study: str) -> TablesOnDisk:
    return TablesOnDisk(EXAMPLE / study / "tables", declared=declared_tables())


def hostile(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the hostile text in each column of free text."""
    texts = [name for name in FREE if name in table and not pd.api.types.is_numeric_dtype(table[name])]
    return table.assign(**{name: table[name].astype("object").where(table[name].isna(), HOSTILE) for name in texts})


@needs_browser
def test_hostile_texts_of_newer_stages_are_text_and_break_no_table(browser, tmp_path):
    tables = {name: hostile(table) for name, table in one_run().items()}
    for name in ("counter_kernels", "energy_use"):
        assert tables[name].eq(HOSTILE).any(axis=None), name
    path = tmp_path / "report.html"
    path.write_text(page(tables, PROVENANCE, made_up_timeline(20), {}), encoding="utf-8")
    browser.get(path.as_uri())
    start_everything(browser)
    assert browser.get_log("browser") == []
    assert browser.execute_script("return [typeof window.taken, document.images.length]") == ["undefined", 0]
    cells = browser.execute_script("return document.querySelector('#table-counter_kernels').textContent")
    assert "<script>window.taken=1</script>" in cells
