"""(f), (g), (h): runs that differ in one dimension alone, in times that a person can check, and what is said."""

from pathlib import Path

import pandas as pd
import pytest

from tests.workflow.small_tables import make_run, make_tables, write_tables
from tests.workflow.test_answers import FAILED, SUMMARIES
from workflow.scripts import answers, speed_ups, summaries
from workflow.tables import read_table
from workflow.text import TEMPLATES

NAMES = ["f_precision", "g_compile", "h_attention", "j_checkpoint", "optimizer"]
TRAIN = {"mode": "train_step"}
RUNS = [
    make_run("base", peak_allocated_bytes=4 * 2**30, **TRAIN),
    make_run("low", 2.0, wall_ms=5.0, precision="bf16", loss=2.1, **TRAIN),
    make_run("compiled", 1.25, compile="on", graph_breaks=1, compile_s=5.0, **TRAIN),
    make_run("flash", 1.5, attention="flash", peak_allocated_bytes=2**30, **TRAIN),
    make_run("math", 0.8, attention="math", peak_allocated_bytes=8 * 2**30, **TRAIN),
    make_run("again", 0.75, checkpoint="1", peak_allocated_bytes=2**30, **TRAIN),
    make_run("huge", model="huge", timing_status="out_of_memory", capture_status="out_of_memory", **TRAIN),
    make_run("huge_1", 0.1, model="huge", checkpoint="1", peak_allocated_bytes=60 * 2**30, **TRAIN),
    make_run("fused", 1.01, optimizer="fused", **TRAIN),
    make_run("both", precision="bf16", context_length=256, **TRAIN),  # differs in two dimensions
]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with the table, the figures, and the documents of RUNS."""
    folder = tmp_path_factory.mktemp("made")
    tables, summed = write_tables(folder, *RUNS), [str(folder / f"{name}.parquet") for name in SUMMARIES]
    summaries.main(tables, summed)
    table, figures = folder / "speed_ups.parquet", [folder / f"speed_ups_{name}.svg" for name in speed_ups.BASES]
    speed_ups.main(tables, list(map(str, [table, *figures])))
    assert all("busy" in figure.read_text() for figure in figures)
    answers.main([*tables, *summed, str(table)], [str(TEMPLATES / f"{name}.md.j2") for name in NAMES], str(folder))
    return folder


def test_a_run_is_compared_by_phase_with_the_one_at_the_default_that_differs_in_nothing_else(made):
    table = read_table(made / "speed_ups.parquet").set_index(["run", "phase"])
    others = {run["runs"][0]["run"] for run in RUNS} - {"base", "huge", "both"}
    assert set(table.index.get_level_values("run")) == others
    assert set(table["base_run"]) == {"base", "huge"} and pd.isna(table.loc[("huge_1", "step"), "speed_up"])
    low = table.loc["low"]
    assert low.index.tolist() == ["step", "forward", "backward", "optimizer"] and set(low["verdict"]) == {"faster"}
    assert low["speed_up"].tolist() == pytest.approx([2.0] * 4) and low.loc["step", "wall_speed_up"] == 0.8
    assert set(low["wall_verdict"]) == {"cannot be told"} and low.loc["step", "kernels"] == 24
    assert low.loc["forward", "matmul_speed_up"] == pytest.approx(2.0)
    assert pd.isna(low.loc["optimizer", "matmul_speed_up"])
    verdicts = table.xs("step", level="phase")["verdict"]
    assert verdicts[["math", "fused"]].tolist() == ["slower", "cannot be told"]


SAID = {
    "f_precision": [
        "\n\nThe GPU is busy for 3.00 ms of a training step in fp32, 1.50 ms in bf16 (2.00 times as fast)",
        "were not tested: each run was timed in one process", "Accuracy: not compared",
    ],
    "g_compile": [
        "2.40 ms compiled entirely (1.25 times as fast)", "only run had graph breaks",
        "then win back the 5.00 s that",
    ],
    "h_attention": [
        "2.00 ms with flash attention (1.50 times as fast)", "with math attention (0.800 times as fast)",
        "(3 captured steps each), the GPU is busy for less time in 1 of 2 runs, for more time in 1 of 2 runs",
        "in fp32 `attentions: [flash]`",
        "takes 0.500 ms with eager attention, 0.334 ms with flash attention", "4.0 GiB → 1.0 GiB",
    ],
    "j_checkpoint": [
        "With a checkpoint for each block, a training step needs 1.0 GiB instead of 4.0 GiB at its peak, and keeps",
        "runs out of memory without checkpoints; it fits with a checkpoint for each block (GPU busy for 30.0 ms, peak",
    ],
    "optimizer": ["with the fused optimizer (1.01 times as fast)", "or not told apart, in the only run", "1.01 ?"],
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_document_leads_with_gpu_time_and_says_why_and_what_to_do(made, name):
    text = (made / f"{name}.md").read_text()
    assert [said for said in SAID[name] if said not in text] == [] and "What to do" in text
    assert f"](../figures/speed_ups_{name.partition('_')[2] or name}.svg)" in text


def test_a_dimension_without_a_captured_pair_is_not_answered(tmp_path):
    runs = [make_run("base"), make_run("low", precision="bf16", **FAILED)]
    table = speed_ups.compare_dimensions(make_tables(*runs))
    assert "No two captured runs differ in precision alone" in str(speed_ups.draw(table, "precision", "").to_dict())
    tables = write_tables(tmp_path, *runs)
    speed_ups.main(tables, [str(tmp_path / "speed_ups.parquet")])
    answers.main([*tables, str(tmp_path / "speed_ups.parquet")], [str(TEMPLATES / "f_precision.md.j2")], str(tmp_path))
    assert "Not answered: no two captured runs differ in precision" in (tmp_path / "f_precision.md").read_text()
