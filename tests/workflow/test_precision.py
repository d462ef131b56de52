"""(f) The table of precisions: phase by phase in GPU time, with the loss, and its figure."""

import pandas as pd
import pytest

from tests.workflow.small_tables import make_run, write_tables
from workflow.scripts import precision


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    runs = [make_run("base", mode="train_step"), make_run("low", 2.0, mode="train_step", precision="bf16", loss=2.1)]
    outputs = [str(folder / f"precision.{suffix}") for suffix in ("parquet", "svg", "png")]
    precision.main(write_tables(folder, *runs), outputs)
    return folder


def test_every_phase_has_its_speed_up_and_verdict(made):
    table = pd.read_csv(made / "precision.csv").set_index("phase")
    assert table["speed_up"].to_dict() == pytest.approx(
        dict.fromkeys(["step", "forward", "backward", "optimizer"], 2.0)
    )
    assert set(table["verdict"]) == {"faster"} and set(table["precision"]) == {"bf16"}
    assert table["loss_difference"]["step"] == pytest.approx(0.05)
    assert (table["speed_up_low"] < 2).all() and (table["speed_up_high"] > 2).all()


def test_the_figure_has_its_result_and_the_machine(made):
    svg = (made / "precision.svg").read_text()
    assert "2.00" in svg and "training step" in svg and "NVIDIA H200" in svg
    assert (made / "precision.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_pair_the_table_has_no_rows_and_the_figure_says_why(tmp_path):
    precision.main(
        write_tables(tmp_path, make_run("a")), [str(tmp_path / f"precision.{end}") for end in ("parquet", "svg")]
    )
    assert pd.read_parquet(tmp_path / "precision.parquet").empty
    assert "No two captured runs differ in precision alone." in (tmp_path / "precision.svg").read_text()
