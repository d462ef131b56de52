"""The figures on paper: every grid is drawn whole or says what it lacks, names are text, texts lie on nothing."""

import functools
import json
import xml.etree.ElementTree as ElementTree

import altair as alt
import pandas as pd
import pytest
from altair.vegalite.v6.schema.core import load_schema
from jsonschema.validators import validator_for

from kernel_tables.page.colors import FAMILIES
from profile_grid.figures import marks, paper
from profile_grid.figures.panels import MAX_PANELS, Figure, all_figures, row
from profile_grid.figures.paper import on_paper, vl_convert
from profile_grid.figures.run_selection import labels, of_one_machine, sorted_by_size
from profile_grid.figures.theme import SERIES_COLORS, series_styles
from profile_grid.gpu_peaks import PEAKS, peaks_in_words, peaks_of
from profile_grid.questions.a_forward_time.figure import mean_steps
from profile_grid.questions.b_top_kernels.figure import drawn_kernels
from profile_grid.questions.d_training_vs_inference.figure import drawn_shares
from profile_grid.questions.e_attention.figure import attention_parts
from profile_grid.questions.roofline.figure import roofline
from profile_grid.study.catalogue import QUESTIONS
from profile_grid.study.workloads import MODEL_STEPS
from tests.profile_grid.drawn_text import overlapping, text_boxes
from tests.profile_grid.made_up_grid import HOSTILE, INCOMPLETE, MACHINE, MODELS, OOM, made_up_grid, made_up_tables

CPU = MACHINE | {
    "backend": "torch", "device": "cpu", "device_name": "AMD EPYC 9754", "driver": None, "cuda": None, "nsys": None,
}  # fmt: skip
ONE_RUN = {"models": ("small",), "contexts": (512,), "modes": ("forward",)}
FOUR_WAYS = {
    "models": ("small", "xl"), "contexts": (128, 512), "modes": ("forward", "train_step"),
    "precisions": ("fp32", "bf16"), "batch_sizes": (4, 8),
}  # fmt: skip
ASKED_OF_ANY_GRID = [
    one for one in QUESTIONS if not (one.varies or one.needs or one.stage) and one.workload is MODEL_STEPS
]
FIGURES = all_figures(ASKED_OF_ANY_GRID)  # the others are tested beside their question
OF_KERNELS = {"launch_bound", "top_kernels", "class_shares", "attention", "roofline"}
MANY_OOM = {f"{model}_ctx{context}_train_step": OOM for model in list(MODELS)[1:] for context in (128, 1024)}
GRIDS = {
    "60 runs": made_up_grid,
    "one run": lambda: made_up_tables(**ONE_RUN),
    "training only": lambda: made_up_tables(**{**ONE_RUN, "modes": ("train_step",)}),
    "no kernels": lambda: made_up_tables(**ONE_RUN, changes={"small_ctx512_forward": INCOMPLETE}),
    "out of memory": lambda: made_up_tables(**ONE_RUN, changes={"small_ctx512_forward": OOM}),
    "a CPU": lambda: made_up_tables(**ONE_RUN, machine=CPU),
    "four ways": lambda: made_up_tables(**FOUR_WAYS),
    "many out of memory": lambda: made_up_tables(changes=MANY_OOM),
}
SCHEMA = load_schema()
VEGA_LITE = validator_for(SCHEMA)(SCHEMA)
EXPRESSIONS = ("expr", "filter", "calculate", "test", "signal", "labelExpr", "field", "href", "url")


def drawn(name: str, tables: dict) -> dict:
    """The figure's specification, from the tables that it says it needs and no other."""
    figure = FIGURES[name]
    return on_paper(figure, {table: tables[table] for table in figure.tables})


@functools.cache
def drawn_from(grid: str, name: str) -> dict:
    """The figure's specification from one of the grids that several tests look at."""
    return drawn(name, tables_of(grid))


@functools.cache
def tables_of(grid: str) -> dict:
    return GRIDS[grid]()


def text_of(specification: dict) -> str:
    """All text of the figure as a reader of the SVG sees it, line breaks as blanks."""
    return " ".join(" ".join(ElementTree.fromstring(paper.drawn(specification, ".svg")).itertext()).split())


def rows_in(specification: dict) -> list[dict]:
    """All rows of data in the figure."""
    return [row for rows in specification["datasets"].values() for row in rows]


def walked(value, key=""):
    """Every (key, text) in a specification, whatever holds it."""
    if isinstance(value, dict):
        for inner, own in value.items():
            yield from walked(own, inner)
    elif isinstance(value, list):
        for own in value:
            yield from walked(own, key)
    elif isinstance(value, str):
        yield key, value


def test_the_questions_define_the_figures_that_the_catalogue_declares():
    assert tuple(all_figures()) == tuple(name for question in QUESTIONS for name in question.figures)


@pytest.mark.parametrize("name", FIGURES)
def test_a_whole_grid_is_drawn_with_its_machine_and_names_the_runs_without_figures(name):
    text = text_of(drawn_from("60 runs", name))
    assert "NVIDIA H200, driver 580.82, CUDA 13.0, PyTorch 2.11.0, Nsight Systems 2025.3.1" in text
    assert FIGURES[name].title in text
    assert FIGURES[name].result(tables_of("60 runs")) in text
    missing = "2.7B · 1024 · training step"
    assert (missing in text.partition("Out of memory: ")[2]) == (name != "attention")  # which has its forward pass


@pytest.mark.parametrize("name", ["phase_times", "scaling"])
def test_a_run_out_of_memory_is_marked_at_its_model_and_context(name):
    specification = drawn_from("60 runs", name)
    assert "2.7B: out of memory" in text_of(specification)
    marked = [row for row in rows_in(specification) if row.get("why", "").startswith("out of memory")]
    assert {(row["model"], row["context_length"]) for row in marked} == {("2.7B", 1024)}
    assert marked[0]["why"] == "out of memory: CUDA out of memory"


def test_the_shares_name_what_ran_out_of_memory_and_what_the_grid_does_not_have():
    tables = made_up_tables(models=("small",), contexts=(128, 512), changes={"small_ctx512_train_step": OOM})
    tables["runs"] = tables["runs"][tables["runs"]["run"] != "small_ctx512_forward"]
    specification = drawn("class_shares", tables)
    words = [(row["bar"], row["text"]) for row in rows_in(specification) if "text" in row and "family" not in row]
    assert sorted(words) == [("small · 512", "not in the grid"), ("small · 512", "out of memory")]
    text = text_of(specification)
    assert (text.count("small · 128"), text.count("small · 512")) == (1, 2)  # the second is in the notes too


@pytest.mark.parametrize("name", FIGURES)
def test_a_dimension_that_the_figure_does_not_show_gets_panels_of_its_own(name):
    specification = drawn_from("four ways", name)
    text = text_of(specification)
    for precision in ("fp32", "bf16"):
        for batch in (4, 8):
            assert text.count(f"precision {precision}, batch {batch}") == 1


@pytest.mark.parametrize("name", FIGURES)
def test_no_set_of_data_mixes_two_values_of_a_dimension_that_the_figure_does_not_show(name):
    for rows in drawn_from("four ways", name)["datasets"].values():
        for key in ("precision", "batch_size"):
            assert len({row[key] for row in rows if key in row}) <= 1


def test_more_combinations_than_there_is_room_for_are_named():
    sizes = tuple(range(1, MAX_PANELS + 3))
    text = text_of(drawn("phase_times", made_up_tables(**ONE_RUN, batch_sizes=sizes)))
    assert f"Not drawn, for want of room: batch {sizes[-2]}; batch {sizes[-1]}." in text


def test_each_precision_has_its_own_roof():
    text = text_of(drawn("roofline", made_up_tables(**ONE_RUN, precisions=("fp32", "bf16"))))
    assert "67 TFLOP/s" in text
    assert "989.4 TFLOP/s" in text
    assert "67 TFLOP/s in fp32" in text
    assert "989.4 TFLOP/s in bf16" in text


@pytest.mark.parametrize("name", ["phase_times", "top_kernels", "class_shares"])
def test_the_same_tables_give_the_same_bytes_without_dates(name):
    tables = made_up_tables(models=("small",), contexts=(128, 512))
    twice = drawn(name, tables), drawn(name, tables)
    for suffix in (".svg", ".png"):
        written = [paper.drawn(specification, suffix) for specification in twice]
        assert written[0] == written[1]
        assert b"<dc:date>" not in written[0]
        assert b"tIME" not in written[0]


@pytest.mark.parametrize(
    ("grid", "undrawn"),
    [("one run", set()), ("training only", set()), ("no kernels", OF_KERNELS), ("out of memory", set(FIGURES))],
)
def test_a_figure_without_data_says_why_and_every_other_is_drawn(grid, undrawn):
    for name, figure in FIGURES.items():
        drawing = figure.draw(tables_of(grid))
        assert (drawing.chart is None) == (name in undrawn), name
        text = text_of(drawn_from(grid, name))
        if name in undrawn:
            assert drawing.reason.startswith("No ")
            assert drawing.reason in text
        else:
            assert drawing.reason == ""
            assert rows_in(drawing.chart)


def test_runs_without_kernels_are_in_no_row_that_needs_kernels():
    tables = made_up_tables(
        models=("small",), contexts=(128, 512), modes=("forward",), changes={"small_ctx512_forward": INCOMPLETE}
    )
    for rows in (
        mean_steps(tables["runs"], tables["phases"]),
        drawn_shares(tables["runs"], tables["class_shares"]),
        attention_parts(tables["runs"], tables["attention"]),
        roofline(tables["runs"], tables["ranges"]),
        drawn_kernels(tables["runs"], tables["kernels"]),
    ):
        assert set(rows["run"]) == {"small_ctx128_forward"}


@pytest.mark.parametrize("name", FIGURES)
def test_a_grid_that_ran_out_of_memory_everywhere_lists_its_runs(name):
    assert "Out of memory: small · 512 · forward pass." in text_of(drawn_from("out of memory", name))


@pytest.mark.parametrize("name", sorted(OF_KERNELS - {"roofline"}))
def test_on_a_cpu_kernels_are_operators(name):
    text = text_of(drawn_from("a CPU", name)) + FIGURES[name].result(tables_of("a CPU"))
    assert "operator" in text
    assert "GPU" not in text
    assert "kernel" not in text.replace(FIGURES[name].title, "")


@pytest.mark.parametrize("name", FIGURES)
def test_a_hostile_model_name_is_written_as_it_is_and_is_no_part_of_an_expression(name):
    hostile = HOSTILE + "\"]||alert(1)||datum['a.b"
    tables = {name: table.assign(model=hostile) for name, table in tables_of("one run").whole().items()}
    specification = drawn(name, tables)
    text = text_of(specification)
    assert hostile in text
    for key, value in walked({k: v for k, v in specification.items() if k != "datasets"}):
        assert key not in EXPRESSIONS or "alert" not in value
    assert b"<script" not in paper.drawn(specification, ".svg")


def test_a_hostile_kernel_name_is_written_as_it_is():
    tables = made_up_tables(**ONE_RUN, hostile=True).whole()
    kernels = tables["kernels"]
    tables["kernels"] = kernels.assign(total_ns=kernels["total_ns"].where(kernels["kernel"] != HOSTILE, 10**10))
    specification = drawn("top_kernels", tables)
    assert HOSTILE in text_of(specification)
    assert b"<script" not in paper.drawn(specification, ".svg")


def test_kernels_have_short_names_in_the_figure_and_their_full_names_in_its_legend():
    tables = made_up_tables(**ONE_RUN)
    text = text_of(drawn("top_kernels", tables))
    short = {
        full: name for name, _, full in (line.partition(": ") for line in FIGURES["top_kernels"].draw(tables).legend)
    }
    longest = tables["kernels"].groupby("kernel")["total_ns"].sum().nlargest(10)
    for kernel in longest.index:
        assert short.get(kernel, kernel) in text


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("grid", ["60 runs", "one run", "four ways", "many out of memory"])
def test_no_text_lies_on_another(name, grid):
    specification = drawn_from(grid, name)
    assert FIGURES[name].title in [box.text for box in text_boxes(specification)]
    assert overlapping(specification) == []


def test_texts_that_do_lie_on_each_other_are_found():
    rows = pd.DataFrame({"x": [1, 1.01], "text": ["one text", "another"]})
    chart = alt.Chart(rows, width=200, height=50).mark_text().encode(x=alt.X("x:Q", axis=None), text="text:N")
    assert overlapping(row(chart, spacing=0)) == [("one text", "another")]


@pytest.mark.parametrize("name", FIGURES)
def test_vega_lite_finds_nothing_to_warn_of(name, capfd):
    for grid in ("60 runs", "four ways"):
        vl_convert.vegalite_to_svg(drawn_from(grid, name), show_warnings=True)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_meets_the_schema_of_vega_lite(name):
    specification = drawn_from("60 runs", name)
    assert "vconcat" in specification
    assert [error.message for error in VEGA_LITE.iter_errors(specification)] == []


def test_what_vega_lite_does_not_know_is_found():
    specification = drawn_from("one run", "phase_times") | {"vconcat": [{"mark": "no such mark"}]}
    assert [*VEGA_LITE.iter_errors(specification)] != []


@pytest.mark.parametrize("name", FIGURES)
def test_tables_whose_texts_are_encoded_as_categories_give_the_same_figure(name):
    tables = {table: tables_of("one run")[table] for table in FIGURES[name].tables}
    texts = {table: list(rows.select_dtypes("str")) for table, rows in tables.items()}
    assert all(texts.values())
    encoded = {table: rows.astype(dict.fromkeys(texts[table], "category")) for table, rows in tables.items()}
    assert drawn(name, encoded) == drawn_from("one run", name)


def test_only_one_machine_is_drawn_and_the_other_is_named():
    tables = made_up_tables(models=("small",), modes=("forward",))
    device = tables["runs"]["device_name"].where(tables["runs"]["context_length"] != 128, "NVIDIA A100-SXM4-80GB")
    tables["runs"] = tables["runs"].assign(device_name=device)
    kept, machine, left_out = of_one_machine(tables)
    assert machine.startswith("NVIDIA H200")
    assert set(kept["kernels"]["context_length"]) == {256, 512, 1024}
    assert left_out[0].startswith("Not drawn: 1 run(s) of NVIDIA A100-SXM4-80GB")
    assert "Not drawn: 1 run(s) of NVIDIA A100-SXM4-80GB" in text_of(drawn("scaling", tables))


def test_a_spread_of_more_than_half_its_mean_has_no_lower_half():
    rows = pd.DataFrame({"ms": [10.0, 10.0, 10.0], "std": [2.0, 6.0, None]})
    ends = marks.with_ends(rows, "ms", "std", "ms")
    assert ends[["ms_low", "ms_high"]].fillna(-1).values.tolist() == [[8, 12], [10, 16], [-1, -1]]


def test_many_runs_without_figures_are_named_up_to_a_line_or_two_and_counted():
    runs = [f"run_{number}" for number in range(100)]
    missing = pd.DataFrame({"name": runs, "status": ["out_of_memory"] * 99 + ["incomplete"]})
    notes = marks.missing_notes(missing)
    assert notes[0].startswith("Out of memory: run_0, run_1, ")
    assert notes[0].endswith("run_29 and 69 more.")
    assert notes[1] == "Capture incomplete: run_99."


def test_no_two_series_and_no_two_families_look_the_same():
    for count in (8, 20, 60):
        looks = list(zip(*[map(str, of) for of in series_styles([f"series {n}" for n in range(count)])], strict=True))
        assert len({(color, shape) for color, shape, _ in looks}) == count
    assert len(SERIES_COLORS) == len(set(map(str, SERIES_COLORS)))
    assert len(set(FAMILIES.values())) == len(FAMILIES)


def test_an_unknown_gpu_has_no_peaks_and_says_so():
    assert peaks_of("NVIDIA H200 but not quite") is None
    tables = made_up_tables(**ONE_RUN, machine=MACHINE | {"device_name": "NVIDIA X1"})
    text = text_of(drawn("roofline", tables))
    assert "The peaks of NVIDIA X1 are not known to this project" in text
    assert "TFLOP/s in fp32" not in text


def test_peaks_name_their_source():
    assert all(peaks.source for peaks in PEAKS.values())
    text = peaks_in_words("NVIDIA H200", "fp32")
    assert text.startswith("Peaks of NVIDIA H200: 67 TFLOP/s in fp32, 4.8 TB/s (NVIDIA H200")


@pytest.mark.parametrize(
    ("gpu", "tflop_per_s"),
    [("Tesla V100-SXM2-16GB", 125), ("Tesla V100-PCIE-32GB", 112), ("Tesla T4", 65), ("NVIDIA H200", 989.4)],
)
def test_tensor_cores_for_fp16_alone_have_a_peak_in_fp16(gpu, tflop_per_s):
    assert peaks_of(gpu).flop_per_s("fp16") == tflop_per_s * 1e12
    assert (peaks_of(gpu).flop_per_s("bf16") is None) == (tflop_per_s < 200)


def test_the_same_thing_has_the_same_look_whatever_it_is_drawn_with():
    alone, among = series_styles(["bf16"]), series_styles(["another", "fp32", "bf16"])
    assert [styles[0] for styles in alone] == [styles[2] for styles in among]
    assert len({str(color) for color in among[0]}) == 3
    assert len({str(color) for color in series_styles(["small", "fp32"])[0]}) == 2  # both are the first of their kind


def test_results_say_what_the_data_show():
    grid = made_up_grid()
    results = {name: figure.result(grid) for name, figure in FIGURES.items()}
    times = grid["timings"][grid["timings"]["run"].str.endswith("train_step")]
    forward = times[times["phase"] == "forward"]["mean_ms"]
    assert results["phase_times"].startswith(
        f"Without a profiler: forward {forward.min():.2f} to {forward.max():.0f} ms, backward"
    )
    assert results["class_shares"].startswith("Of the GPU time, matrix multiplies take")
    assert "a training step with twice the parameters takes" in results["scaling"]
    assert "TFLOP/s" in results["roofline"]
    assert results["top_kernels"].endswith("of the GPU time of 2.7B · 512 · training step")


def test_a_figure_reads_no_table_that_it_does_not_declare():
    tables = made_up_tables(**ONE_RUN)
    for figure in FIGURES.values():
        assert isinstance(figure, Figure)
        own = {name: tables[name] for name in figure.tables}
        assert json.dumps(on_paper(figure, own))
        assert figure.result(own) or figure.name == "scaling"  # of which one run says nothing


def test_rows_are_ordered_by_size_whatever_their_index():
    runs = made_up_tables(models=("small", "xl"), contexts=(128, 1024))["runs"]
    mixed = pd.concat([runs.iloc[::-2], runs.iloc[-2::-2]])
    assert sorted_by_size(mixed.set_axis([0] * len(mixed)), runs)["run"].tolist() == runs["run"].tolist()
    assert labels(runs)[:2] == ["small · 128 · forward pass", "small · 128 · forward + backward"]
