"""The figures of (a) to (e): drawn twice, the same for the same tables, for every kind of grid."""

from pathlib import Path
from xml.etree import ElementTree

import altair as alt
import pandas as pd
import pytest

from tests.workflow.small_tables import SIZES, make_run, write_tables
from tests.workflow.test_answers import FAILED, SUMMARIES
from workflow import charts
from workflow.scripts import figures, summaries


def draw(folder: Path, *runs: dict, suffixes=("svg",), names=tuple(figures.DRAWN), **options) -> dict[str, str]:
    """The SVG of every figure by name."""
    tables = write_tables(folder, *runs)
    made = [str(folder / f"{name}.parquet") for name in SUMMARIES]
    summaries.main(tables, made)
    outputs = [str(folder / "figures" / f"{name}.{suffix}") for name in names for suffix in suffixes]
    figures.main([*tables, *made], outputs, **options)
    return {name: (folder / "figures" / f"{name}.svg").read_text() for name in names}


def texts(svg: str) -> str:
    return " ".join(ElementTree.fromstring(svg).itertext()).replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> dict[str, str]:
    runs = [
        make_run("a"), make_run("long", 0.5, context_length=256), make_run("train", mode="train_step"),
        make_run("train_long", 0.5, mode="train_step", context_length=256), make_run("big", model="big", **FAILED),
    ]  # fmt: skip
    return draw(tmp_path_factory.mktemp("drawn"), *runs)


RESULTS = {
    "phase_times": "GPU time of a training step: forward 1.00 to 2.00 ms, backward 1.50 to 3.00 ms",
    "class_shares": "Matrix multiplies (gemm) take 90.0 % of a forward pass, 63.3 % of a training step",
    "top_kernels": "takes 50.0 % of the GPU time of tiny · 256 · training step",
    "attention": "Softmax takes 0.250 times as long as both matrix multiplies of attention, with 3.9 % of their FLOPs",
    "launch_bound": "The GPU idles for 15 % or more of the step in 4 of 4 captured runs",
    "roofline": "At context 256, final matmul reaches the most: 335 GFLOP/s",
    "scaling": "A training step takes 3.00 to 6.01 ms of GPU time; 2 times the context takes 2.00 times as long",
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_figure_says_its_result_and_its_machine(drawn, name):
    shown = texts(drawn[name])
    assert RESULTS[name] in shown and "Measured on NVIDIA H200" in shown
    assert "Not measured: big at context 128, forward pass" in shown


def test_a_figure_is_the_same_for_the_same_tables(drawn, tmp_path):
    again = draw(tmp_path, make_run("a"), names=("class_shares",), suffixes=("svg", "png"))
    more = draw(tmp_path, make_run("a"), names=("attention", "class_shares"))
    assert again["class_shares"] == more["class_shares"]
    assert (tmp_path / "figures/class_shares.png").read_bytes().startswith(b"\x89PNG")


def test_a_grid_without_any_complete_run_has_figures_that_say_so(tmp_path):
    drawn = draw(tmp_path, make_run("a", **FAILED))
    assert len(drawn) == 7 and all("No data" in texts(svg) for svg in drawn.values())


def test_runs_that_differ_in_more_than_size_are_named_by_it(tmp_path):
    runs = make_run("a", mode="train_step"), make_run("b", mode="train_step", gpus=2, parallel="ddp")
    drawn = draw(tmp_path, *runs, names=("phase_times", "class_shares"))
    assert all("2 GPUs · ddp" in texts(svg) for svg in drawn.values())


def test_sizes_with_other_names_leave_out_the_roofline_alone(tmp_path):
    drawn = draw(tmp_path, make_run("a", **dict.fromkeys(SIZES)), names=("roofline", "scaling"))
    assert ["No data" in texts(svg) for svg in drawn.values()] == [True, False]


def test_without_a_gpu_no_figure_speaks_of_one(tmp_path):
    cpu = {"device": "cpu", "device_name": "AMD", "backend": "torch"}
    drawn = draw(tmp_path, make_run("a", **cpu), names=("scaling", "launch_bound"))
    assert not any("GPU" in texts(svg) for svg in drawn.values())


def test_figures_of_an_earlier_grid_go_and_those_of_other_studies_stay(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("old.svg", "energy.svg", "notes.txt"):
        (tmp_path / "figures" / name).write_text("x")
    draw(tmp_path, make_run("a"), names=("scaling",), figures=["energy"])
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {"scaling.svg", "energy.svg", "notes.txt"}


def test_a_name_has_the_same_colour_in_every_figure():
    models = ["large"], ["small", "large"]
    one, two = (
        charts.series_color(pd.DataFrame({"model": names}), "model").to_dict()["scale"]["range"] for names in models
    )
    assert one == two[1:] and one != two[:1]
    part = charts.part_color(pd.DataFrame({"class": ["gemm/x"]}), "class").to_dict()
    assert part["scale"]["range"] == [charts.BLUE]


@pytest.mark.parametrize("values", [[5.0], [3.0, 4.0], [1.0, 1000.0], [2e9, 5e13]])
def test_a_logarithmic_axis_has_ticks_for_few_values_and_for_many(values):
    axis = charts.log_axis(alt.Y, "x", None, values).to_dict()
    ticks, (low, high) = axis["axis"]["values"], axis["scale"]["domain"]
    assert 3 <= len(ticks) <= 8 and low < min(values) and max(values) < high
    assert all(low <= tick <= high for tick in ticks)
