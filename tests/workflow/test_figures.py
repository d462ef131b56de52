"""The figures of (a) to (e): the same for the same tables, for every kind of grid."""

from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from tests.workflow.small_tables import SIZES, make_run, write_tables
from tests.workflow.test_answers import CPU, FAILED, SUMMARIES
from workflow import charts
from workflow.scripts import figures, summaries


def draw(folder: Path, *runs: dict, names=tuple(figures.DRAWN), others=()) -> dict[str, str]:
    """The text of every figure by name."""
    tables, made = write_tables(folder, *runs), [str(folder / f"{name}.parquet") for name in SUMMARIES]
    summaries.main(tables, made)
    outputs = [str(folder / "figures" / f"{name}.{suffix}") for name in names for suffix in ("svg", "png")]
    figures.main([*tables, *made], outputs, others)
    roots = {name: ElementTree.parse(folder / f"figures/{name}.svg").getroot() for name in names}
    return {name: " ".join(root.itertext()).replace("\N{NO-BREAK SPACE}", " ") for name, root in roots.items()}


RESULTS = {
    "phase_times": "GPU time of a training step: forward 1.00 to 2.00 ms, backward 1.50 to 3.00 ms",
    "class_shares": "Matrix multiplies (gemm) take 90.0 % of a forward pass, 63.3 % of a training step",
    "top_kernels": " takes 50.0 % of the GPU time of tiny at context 128, training step",
    "attention": "Softmax takes 0.250 times as long as both matrix multiplies of attention, with 3.9 % of their FLOPs",
    "roofline": "At most 0.335 TFLOP/s, by final matmul: 0.5 % of the peak in fp32",
    "scaling": "A forward pass takes 1.00 to 2.00 ms of GPU time; 2 times the context takes 2.00 times as long",
}


def test_a_figure_says_its_result_and_its_machine_and_is_the_same_again(tmp_path):
    modes = ("forward", "train_step")
    runs = [make_run(mode, mode=mode) for mode in modes] + [make_run("big", model="big", **FAILED)]
    runs += [make_run(f"long_{mode}", 0.5, context_length=256, mode=mode) for mode in modes]
    drawn = draw(tmp_path / "one", *runs)
    for name, result in RESULTS.items():
        assert result in drawn[name] and "Measured on NVIDIA H200" in drawn[name]
        assert "Not measured: big at context 128, forward pass" in drawn[name]
    draw(tmp_path / "two", *runs, names=("class_shares",))
    for name in ("class_shares.svg", "class_shares.png"):
        assert (tmp_path / "one/figures" / name).read_bytes() == (tmp_path / "two/figures" / name).read_bytes()


def test_a_figure_without_data_says_so(tmp_path):
    assert all("No data" in text for text in draw(tmp_path / "failed", make_run("a", **FAILED)).values())
    drawn = draw(tmp_path / "own", make_run("a", **dict.fromkeys(SIZES)), names=("roofline", "scaling"))
    assert ["No data" in text for text in drawn.values()] == [True, False]


def test_runs_are_named_by_what_differs_and_without_a_gpu_no_figure_speaks_of_one(tmp_path):
    runs = make_run("a", mode="train_step", **CPU), make_run("b", mode="train_step", precision="bf16", **CPU)
    drawn = draw(tmp_path, *runs)
    assert "· bf16" in drawn["class_shares"] and not any("GPU" in text for text in drawn.values())


def test_a_name_has_the_same_colour_in_every_figure():
    one, two = (charts.series_color(pd.DataFrame({"m": names}), "m").to_dict() for names in (["xl"], ["small", "xl"]))
    assert one["scale"]["range"] == two["scale"]["range"][1:]
