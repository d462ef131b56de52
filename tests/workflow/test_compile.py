"""(g) The table of compiled runs: what they gain in GPU time, what the first step costs, and when it pays."""

import pandas as pd
import pytest

from tests.workflow.small_tables import make_run, write_tables
from workflow.scripts import compile as compiling


def compare(folder, *runs) -> pd.DataFrame:
    compiling.main(write_tables(folder, *runs), [str(folder / f"compile.{suffix}") for suffix in ("parquet", "svg")])
    return pd.read_parquet(folder / "compile.parquet").set_index("phase")


def test_compiling_pays_after_the_steps_whose_gpu_time_it_saved(tmp_path):
    table = compare(tmp_path, make_run("base"), make_run("on", 2.0, compile="on", compile_s=5.0, graph_breaks=2))
    assert table["speed_up"]["step"] == pytest.approx(2.0) and table["graph_breaks"]["step"] == 2
    assert table["pays_after_steps"]["step"] == pytest.approx(5000 / 0.5, rel=2e-3)
    assert pd.isna(table["pays_after_steps"]["forward"])  # a step is compiled, not a phase
    assert "the entire model" in (tmp_path / "compile.svg").read_text()


def test_what_is_not_faster_never_pays(tmp_path):
    table = compare(tmp_path, make_run("base"), make_run("on", 1.01, compile="on", compile_s=5.0))
    assert table["verdict"]["step"] == "cannot be told" and pd.isna(table["pays_after_steps"]["step"])
    assert table["compile_s"]["step"] == 5.0


def test_results_without_the_time_of_compiling_have_an_empty_column(tmp_path):
    table = compare(tmp_path, make_run("base"), make_run("attention", 2.0, compile="attention"))
    assert table["compile_s"].isna().all() and "only attention" in (tmp_path / "compile.svg").read_text()
