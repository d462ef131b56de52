"""(f), (g) The tables and figures of what another precision and compiling gain and cost."""

import pandas as pd
import pytest

from tests.workflow.small_tables import make_run, write_tables
from workflow.scripts import compile as compiling
from workflow.scripts import precision


def compare(folder, name: str, *runs) -> tuple[pd.DataFrame, str]:
    """The table by phase, and the figure."""
    script = {"precision": precision, "compile": compiling}[name]
    script.main(write_tables(folder, *runs), [str(folder / f"{name}.{suffix}") for suffix in ("parquet", "svg")])
    return pd.read_parquet(folder / f"{name}.parquet").set_index("phase"), (folder / f"{name}.svg").read_text()


def test_a_precision_has_its_speed_up_and_verdict_by_phase_and_its_loss(tmp_path):
    low = make_run("low", 2.0, mode="train_step", precision="bf16", loss=2.1)
    table, svg = compare(tmp_path, "precision", make_run("base", mode="train_step"), low)
    assert table["speed_up"].tolist() == pytest.approx([2.0] * 4) and set(table["verdict"]) == {"faster"}
    assert table["loss_difference"]["step"] == pytest.approx(0.05)
    assert "2.00" in svg and "training step" in svg and "NVIDIA H200" in svg


def test_without_a_pair_the_table_has_no_rows_and_the_figure_says_why(tmp_path):
    table, svg = compare(tmp_path, "precision", make_run("a"))
    assert table.empty and "No two captured runs differ in precision alone." in svg


@pytest.mark.parametrize(("speed", "steps"), [(2.0, 10_000), (1.01, None)])
def test_compiling_pays_after_the_steps_whose_gpu_time_it_saved(tmp_path, speed, steps):
    runs = make_run("base"), make_run("on", speed, compile="on", compile_s=5.0, graph_breaks=2)
    table, svg = compare(tmp_path, "compile", *runs)
    assert table["graph_breaks"]["step"] == 2 and "the entire model" in svg
    assert table["pays_after_steps"]["step"] == pytest.approx(steps or float("nan"), rel=2e-3, nan_ok=True)
    assert pd.isna(table["pays_after_steps"]["forward"])  # a step is compiled, not a phase


def test_results_without_the_time_of_compiling_have_an_empty_column(tmp_path):
    table, svg = compare(tmp_path, "compile", make_run("base"), make_run("attention", 2.0, compile="attention"))
    assert table["compile_s"].isna().all() and "only attention" in svg
