"""What the page is made of, without a browser: names, data for scripts, Markdown, the flame graph's nodes."""

import json
import math

import pandas as pd
import pytest

from kernel_tables.page.colors import FAMILIES, LOOKS, PHASES, PLAIN
from kernel_tables.page.markup import for_script
from kernel_tables.page.step import flame
from kernel_tables.page.timeline import Names
from profile_grid.figures.panels import all_figures
from profile_grid.page import charts, markdown, menus
from profile_grid.page import tables as page_tables_module
from profile_grid.page.charts import compact, page_figures
from profile_grid.page.step_views import advice, leaves, opening_run, run_timeline, scope, speed
from profile_grid.page.tables import divided_room, names_that_fit, page_table, page_tables
from profile_grid.study.catalogue import QUESTIONS
from profile_grid.study.table_spec import PageTable, TableSpec, columns
from profile_grid.study.workloads import MODEL_STEPS
from profile_grid.tables.names import WHOLE_STEP
from tests.kernel_tables.page_bars import bars_in
from tests.profile_grid.made_up_grid import HOSTILE, made_up_tables


def test_kernels_have_short_names_that_are_no_others_and_other_names_stay_whole():
    names = Names({"void f<float>(int)": "f"})
    for name in ("void f<double>(int)", "void f<float>(int)", HOSTILE):
        names.kernel(name)
    names.number("void a_range<int>")
    found = names.as_lists()
    assert found["full"] == ["void f<double>(int)", "void f<float>(int)", HOSTILE, "void a_range<int>"]
    assert found["short"] == ["f fp64", "f", HOSTILE, "void a_range<int>"]


def test_data_for_scripts_cannot_end_the_script_and_reads_back_as_it_was():
    value = {"name": "</script><script>alert(1)</script>\u2028", "ms": 1.5, "none": None}
    text = str(for_script(value))
    assert "<" not in text
    assert json.loads(text) == value


def test_sentences_become_html_without_links_or_html_of_their_own():
    assert markdown("**sgemm 1** takes `a<b>` ms") == "<strong>sgemm 1</strong> takes <code>a&lt;b&gt;</code> ms"
    assert markdown(r"\<script\> \[x\](javascript:alert(1))") == "&lt;script&gt; [x](javascript:alert(1))"
    assert "<a" not in markdown("[x](https://example.org) <b>")


def test_the_flame_of_a_step_conserves_time_from_kernels_to_ranges_to_the_step():
    tables = made_up_tables(models=("small",), contexts=(128,), modes=("train_step",))
    names = Names()
    nodes = flame(leaves(tables["kernels"]), names)
    total_ms = tables["kernels"]["total_ns"].sum() / 3 / 1e6
    assert nodes["ms"][0] == pytest.approx(total_ms)
    children = [0.0] * len(nodes["ms"])
    for parent, ms in zip(nodes["parent"][1:], nodes["ms"][1:], strict=True):
        children[parent] += ms
    for own, below in zip(nodes["ms"], children, strict=True):
        assert below == 0 or below == pytest.approx(own)
    full = names.as_lists()["full"]
    assert [full[number] for number in nodes["name"][:3]] == ["step", "forward", "embedding"]


def test_a_run_out_of_memory_has_its_row_and_no_numbers():
    out = {"timing_status": "out_of_memory", "capture_status": "out_of_memory"}
    tables = made_up_tables(
        models=("small",), contexts=(128,), modes=("forward", "train_step"), changes={"small_ctx128_train_step": out}
    )
    table = page_tables(tables, Names())["forward_time"]
    names = [column.name for column in table.columns]
    row = dict(zip(names, table.rows[1], strict=True))
    assert row["timing_status"] == "out_of_memory"
    assert row["unprofiled_step_ms"] is None
    assert row["forward_gpu_busy_ms"] is None


def test_a_stage_that_no_run_was_asked_for_has_no_column():
    asked = {"small_ctx128_train_step": {"memory_status": "complete"}}
    tables = made_up_tables(models=("small",), contexts=(128,), changes=asked)
    columns = [column.name for column in page_tables(tables, Names(), questions=())["runs"].columns]
    assert {"timing_status", "capture_status", "memory_status"} <= set(columns)
    assert "energy_status" not in columns


def test_what_has_no_room_on_the_page_is_left_out_largest_first():
    assert names_that_fit({"a": 300, "b": 100, "c": 200}, 300) == {"b", "c"}
    assert names_that_fit({"a": 300}, 299) == set()
    assert names_that_fit({}, 0) == set()


def test_a_small_table_leaves_its_room_to_the_larger():
    assert divided_room({"a": 100, "b": 900, "c": 700}, 1000) == {"a": 100, "b": 450, "c": 450}
    assert divided_room({"a": 100, "b": 300}, 1000) == {"a": 100, "b": 300}
    assert divided_room({}, 1000) == {}


def test_a_chart_without_room_says_where_the_figure_is(monkeypatch):
    tables = made_up_tables(models=("small",), contexts=(128,), modes=("forward", "train_step"))
    figures = all_figures(question for question in QUESTIONS if question.workload is MODEL_STEPS)
    images = dict.fromkeys(figures, b"PNG")
    drawn = [
        name for name, figure in page_figures(figures, tables, images, []).items() if figure.chart and figure.image
    ]
    assert set(drawn) >= {"phase_times", "top_kernels", "scaling"}
    monkeypatch.setattr(charts, "MAX_CHART_BYTES", 1000)
    monkeypatch.setattr(charts, "MAX_IMAGE_BYTES", 3 * len(b"PNG"))
    found = page_figures(figures, tables, images, ["Not drawn: 1 run(s) of another machine."])
    assert [figure.chart for figure in found.values()] == [None] * len(figures)
    assert sum(figure.image is not None for figure in found.values()) == 3
    for name in drawn:
        figure = found[name]
        assert f"Left out to limit the size of the page: see figures/{name}.svg, and the tables." in figure.notes
        assert "Not drawn: 1 run(s) of another machine." in figure.notes


def test_the_data_of_a_chart_are_kept_by_column_with_as_many_digits_as_are_read():
    chart = {"mark": "bar", "datasets": {"rows": [{"x": 1.23456789, "y": math.nan}, {"x": 2.0, "y": "a"}], "none": []}}
    chart |= {"hconcat": [{"data": {"name": "rows"}, "title": "rows"}, {"data": {"name": "none"}}]}
    assert compact(chart) == {
        "mark": "bar",
        "hconcat": [{"data": {"name": "data-1"}, "title": "rows"}, {"data": {"name": "data-2"}}],
        "datasets": {
            "data-1": {"columns": ["x", "y"], "rows": [[1.23457, None], [2, "a"]]},
            "data-2": {"columns": [], "rows": []},
        },
    }


def test_a_long_table_shows_its_first_rows_and_counts_the_others(monkeypatch):
    tables = made_up_tables(models=("small",), contexts=(128, 512))
    whole = page_tables(tables, Names())["timings"]
    monkeypatch.setattr(page_tables_module, "MAX_ROWS", 4)
    cut = page_tables(tables, Names())["timings"]
    assert (whole.left_out, cut.left_out) == (0, len(whole.rows) - 4)
    assert cut.rows == whole.rows[:4]


def test_all_tables_together_keep_to_their_room(monkeypatch):
    tables = made_up_tables(models=("small",), contexts=(128, 512))
    whole = page_tables(tables, Names())
    monkeypatch.setattr(page_tables_module, "MAX_BYTES", 10_000)
    cut = page_tables(tables, Names())
    size = sum(len(for_script(row)) for table in cut.values() for row in table.rows)
    assert 8_000 < size < 10_000
    assert cut["runs"].rows == whole["runs"].rows
    assert cut["kernels"].rows == whole["kernels"].rows[: len(cut["kernels"].rows)]
    assert cut["kernels"].left_out == len(whole["kernels"].rows) - len(cut["kernels"].rows) > 0


def test_a_column_is_shown_as_its_description_says():
    declared = TableSpec("name", "rows", columns("of_all | float | of 1 | what part\n made | float | FLOP | how many"))
    frame = pd.DataFrame({"of_all": [0.25], "made": [0.25], "undescribed": [0.25]})
    made = page_table(PageTable("name", "A title"), frame, Names(), declared)
    assert [(one.kind, one.help) for one in made.columns] == [
        ("share", "what part"),
        ("number", "how many"),
        ("number", ""),
    ]


def test_only_dimensions_in_which_the_runs_differ_have_a_menu_in_their_order():
    tables = made_up_tables(models=("medium", "small"), contexts=(512, 128), modes=("forward",), batch_sizes=(8, 4))
    found = menus(tables["runs"])
    assert [(menu.column, menu.label, [value for value, _ in menu.choices]) for menu in found] == [
        ("model", "model", ["small", "medium"]),
        ("context_length", "context", ["128", "512"]),
        ("batch_size", "batch", ["4", "8"]),
    ]


def test_the_timeline_has_its_lanes_from_ranges_to_the_device_and_a_bar_per_row():
    rows = [
        ("kernel", "stream 7", 0, "gemm", 10_000, 20_000, "gemm", "measure > step > forward"),
        ("launch", "main thread", 0, "cudaLaunchKernel", 1_000, 3_000, "gemm", "measure > step > forward"),
        ("range", "main thread", 1, "forward", 0, 5_000, "", "measure > step > forward"),
    ]
    columns = ["track", "lane", "depth", "name", "start_ns", "end_ns", "class", "path"]
    names = Names()
    made = run_timeline(pd.DataFrame(rows, columns=columns), names)
    assert bars_in(made.data, names.as_lists()["full"]) == [
        ("ranges, main thread, level 2", "forward", None, 0, 5_000),
        ("API calls, main thread", "cudaLaunchKernel", "forward", 1_000, 2_000),
        ("device, stream 7", "gemm", "forward", 10_000, 10_000),
    ]
    assert (made.phases, made.families) == (("forward",), ("gemm",))
    assert [LOOKS[look] for look in made.data["look"]] == [PHASES["forward"], PLAIN, FAMILIES["gemm"]]
    assert run_timeline(pd.DataFrame([], columns=columns), names) is None


def test_the_verdict_is_the_time_the_tokens_per_second_and_the_share_of_the_peak():
    tables = made_up_tables(models=("small",), contexts=(512,), modes=("forward", "train_step"))
    run = "small_ctx512_train_step"
    timings = tables["timings"]
    step = timings[(timings["run"] == run) & (timings["phase"] == "step")]["mean_ms"].iloc[0] / 1e3
    flops = 3 * tables["runs"].set_index("run").loc[run, "forward_flops"] / step
    text = speed(tables, run)
    assert text.startswith("A training step of small at context 512 (batch 4, precision fp32) takes **")
    assert f" ms**: {4 * 512 / step:,.0f} tokens per second, {100 * flops / 67e12:.1f} % of the peak in fp32" in text
    assert opening_run(tables) == run


def test_a_run_without_times_has_no_verdict_of_its_speed():
    tables = made_up_tables(models=("small",), contexts=(512,), modes=("forward",)).whole()
    tables["timings"] = tables["timings"].iloc[:0]
    assert speed(tables, "small_ctx512_forward").endswith("was not timed without a profiler.")


def test_advice_is_that_of_the_largest_findings_and_idle_time_is_that_of_a_step_without_a_profiler():
    tables = made_up_tables(models=("small",), contexts=(512,), modes=("forward",)).whole()
    run, steps = "small_ctx512_forward", tables["timings"]["phase"] == WHOLE_STEP
    tables["timings"].loc[steps, "mean_ms"] = 100.0
    tables["phases"].loc[tables["phases"]["phase"] == WHOLE_STEP, "gpu_busy_ns"] = 70_000_000
    rows = [
        (run, "unfused_elementwise", False, 9.0, "fuse"), (run, "launch_bound", False, 40.0, "compile"),
        (run, "casts", True, 30.0, "x"), ("another", "launch_bound", False, 50.0, "batch"),
    ]  # fmt: skip
    findings = pd.DataFrame(rows, columns=["run", "code", "abstained", "gain_ms", "advice"])
    tables["findings"] = findings.assign(gain_percent=1.0)
    assert advice(tables, run) == [
        "Compile: saves at most 30.0 % of the step", "Fuse: saves at most 9.0 % of the step",
    ]  # fmt: skip


def test_the_values_of_the_runs_are_named_by_dimension():
    runs = made_up_tables(models=("small", "medium"), contexts=(512, 128), modes=("forward",))["runs"]
    assert scope(runs) == "model small, medium; context 128, 512; mode forward pass; precision fp32; batch 4"
