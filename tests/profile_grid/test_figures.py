"""The figures: drawn from a made-up grid and from what is left when things went wrong; names are text, bytes repeat."""

import xml.etree.ElementTree as ElementTree

import pytest

from profile_grid.figures import NAMES, caption, figure, save
from profile_grid.figures import rows as figure_rows
from profile_grid.gpu_peaks import PEAKS, peaks_in_words, peaks_of
from tests.profile_grid.made_up_grid import HOSTILE, INCOMPLETE, MACHINE, OOM, made_up_grid, made_up_tables

CPU = MACHINE | {
    "backend": "torch", "device": "cpu", "device_name": "AMD EPYC 9754", "driver": None, "cuda": None, "nsys": None,
}  # fmt: skip
ONE_RUN = {"models": ("small",), "contexts": (512,), "modes": ("forward",)}


def svg_text(drawn, folder) -> str:
    """All text of the figure as a reader of the SVG sees it, line breaks as blanks."""
    path = folder / "figure.svg"
    save(drawn, path, ".svg")
    return " ".join(" ".join(ElementTree.parse(path).getroot().itertext()).split())


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_grid_is_drawn_with_its_machine_and_marks_what_has_no_figures(name, tmp_path):
    text = svg_text(figure(name, made_up_grid()), tmp_path)
    assert "NVIDIA H200, driver 580.82, CUDA 13.0, PyTorch 2.11.0, Nsight Systems 2025.3.1" in text
    if name in ("phase_times", "class_shares", "scaling"):
        assert "out of memory" in text


@pytest.mark.parametrize("name", ["top_kernels", "class_shares"])
def test_the_same_tables_give_the_same_bytes_without_dates_or_paths(name, tmp_path):
    tables = made_up_tables(**ONE_RUN)
    for suffix in (".svg", ".png"):
        written = []
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir(exist_ok=True)
            save(figure(name, tables), tmp_path / folder / f"figure{suffix}", suffix)
            written.append((tmp_path / folder / f"figure{suffix}").read_bytes())
        assert written[0] == written[1]
        assert str(tmp_path).encode() not in written[0]
        assert b"<dc:date>" not in written[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "tables",
    [
        pytest.param(ONE_RUN, id="one run"),
        pytest.param({**ONE_RUN, "machine": CPU}, id="CPU operators"),
        pytest.param({**ONE_RUN, "changes": {"small_ctx512_forward": INCOMPLETE}}, id="no kernels"),
        pytest.param({**ONE_RUN, "changes": {"small_ctx512_forward": OOM}}, id="all out of memory"),
        pytest.param({**ONE_RUN, "modes": ("train_step",)}, id="training only"),
    ],
)
def test_degenerate_grids_still_give_a_figure_and_a_caption(name, tables, tmp_path):
    tables = made_up_tables(**tables)
    assert svg_text(figure(name, tables), tmp_path)
    assert caption(name, tables)


@pytest.mark.parametrize("name", NAMES)
def test_a_grid_that_ran_out_of_memory_everywhere_says_so_in_every_figure_and_draws_no_zero(name, tmp_path):
    tables = made_up_tables(**ONE_RUN, changes={"small_ctx512_forward": OOM})
    text = svg_text(figure(name, tables), tmp_path)
    assert "Out of memory: small_ctx512_forward." in text
    assert not any(axes.lines or axes.patches for axes in figure(name, tables).axes)


def test_a_hostile_kernel_name_is_written_as_it_is(tmp_path):
    tables = made_up_tables(**ONE_RUN, hostile=True)
    kernels = tables["kernels"]
    tables["kernels"] = kernels.assign(total_ns=kernels["total_ns"].where(kernels["kernel"] != HOSTILE, 10**10))
    drawn = figure("top_kernels", tables)
    assert HOSTILE in svg_text(drawn, tmp_path)
    assert b"<script" not in (tmp_path / "figure.svg").read_bytes()


def test_a_hostile_model_name_is_written_as_it_is(tmp_path):
    tables = made_up_tables(**ONE_RUN)
    tables = {name: table.assign(model=HOSTILE) for name, table in tables.items()}
    for name in NAMES:
        text = svg_text(figure(name, tables), tmp_path)
        assert HOSTILE in text or name in ("top_kernels", "roofline", "scaling")


def test_long_kernel_names_are_whole_in_the_notes(tmp_path):
    tables = made_up_tables(**ONE_RUN)
    text = svg_text(figure("top_kernels", tables), tmp_path).replace(" ", "")
    top = figure_rows.top_kernels(tables["kernels"], "small_ctx512_forward", "forward", 10)
    for kernel in top["kernel"]:
        assert kernel.replace(" ", "") in text


def test_only_one_machine_is_drawn_and_the_other_is_named(tmp_path):
    tables = made_up_tables(models=("small",), modes=("forward",))
    device = tables["runs"]["device_name"].where(tables["runs"]["context_length"] != 128, "NVIDIA A100-SXM4-80GB")
    tables["runs"] = tables["runs"].assign(device_name=device)
    drawn, machine, left_out = figure_rows.of_one_machine(tables)
    assert machine.startswith("NVIDIA H200")
    assert set(drawn["kernels"]["context_length"]) == {256, 512, 1024}
    assert left_out[0].startswith("Not drawn: 1 run(s) of NVIDIA A100-SXM4-80GB")
    assert "NVIDIA A100-SXM4-80GB" in svg_text(figure("scaling", tables), tmp_path)


def test_the_profiled_time_of_a_phase_spans_its_first_kernel_to_its_last():
    tables = made_up_tables(**ONE_RUN)
    phases = tables["phases"].assign(gpu_span_ns=[7_000_000] * 6)
    times = figure_rows.phase_times(tables["runs"], tables["timings"], phases)
    assert times[["phase", "profiled_ms", "profiled_std_ms"]].values.tolist() == [["forward", 7.0, 0.0]]


def test_shares_of_classes_become_shares_of_families_that_sum_to_one():
    shares = figure_rows.class_shares(made_up_grid()["runs"], made_up_grid()["class_shares"])
    assert "elementwise" in set(shares["family"])
    assert not shares["family"].str.contains("/").any()
    assert shares.groupby("run")["share"].sum().to_numpy() == pytest.approx(1)


def test_the_roofline_divides_the_flops_of_the_shapes_by_measured_time():
    tables = made_up_tables(**ONE_RUN)
    points = figure_rows.roofline(tables["runs"], tables["ranges"]).set_index("part")
    scores = points.loc["computing attention scores"]
    assert scores["flops"] == 12 * 1_610_612_736
    assert scores["flop_per_s"] == scores["flops"] / scores["gpu_s"]


def test_a_model_of_other_shapes_than_its_flops_say_has_no_roofline():
    tables = made_up_tables(**ONE_RUN)
    runs = tables["runs"].assign(forward_flops=tables["runs"]["forward_flops"] + 1)
    assert figure_rows.roofline(runs, tables["ranges"]).empty


def test_an_unknown_gpu_has_no_peaks_and_says_so(tmp_path):
    assert peaks_of("NVIDIA H200 but not quite") is None
    tables = made_up_tables(**ONE_RUN, machine=MACHINE | {"device_name": "NVIDIA X1"})
    text = svg_text(figure("roofline", tables), tmp_path)
    assert "The peaks of NVIDIA X1 are not known to this project" in text
    assert "TFLOP/s in fp32" not in text


def test_peaks_name_their_source():
    assert all(peaks.source for peaks in PEAKS.values())
    text = peaks_in_words("NVIDIA H200", "fp32")
    assert text.startswith("Peaks of NVIDIA H200: 67 TFLOP/s in fp32, 4.8 TB/s (NVIDIA H200")


def test_captions_say_what_the_data_show():
    grid = made_up_grid()
    assert caption("phase_times", grid).startswith("Without a profiler: backward")
    assert "1 run(s) have no figures" in caption("phase_times", grid)
    assert "Matrix multiplies take" in caption("class_shares", grid)
    assert "exponent" in caption("scaling", grid)
    assert "67 TFLOP/s in fp32" in caption("roofline", grid)
