"""The page in a real browser: it starts without complaints, its figures and tables work, and names stay text."""

from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from profile_grid.figures.panels import all_figures
from profile_grid.figures.paper import drawn, on_paper
from profile_grid.page import page
from profile_grid.study.catalogue import questions_asked
from tests.browser import needs_browser, until
from tests.profile_grid.made_up_grid import HOSTILE, MODELS, OOM, made_up_grid, made_up_tables

MEGABYTE = 1_000_000
ARROW_DOWN = "\ue015"
PROVENANCE = {
    "runs": 60,
    "git_commit": "0123abc",
    "device_name": HOSTILE,
    "nsys": ["2025.3.1", "2024.2.3"],
    "cuda": None,
}
pytestmark = needs_browser


def made_up_timeline(kernels: int = 3000) -> pd.DataFrame:
    """A step of 3,000 kernels on one stream, each launched 20 µs before, in forward or optimizer; one is hostile."""
    rows = [("range", "main thread", 0, "step", 0, kernels * 10_000, "", "measure > step")]
    for number, phase in enumerate(("forward", "optimizer")):
        start = number * kernels * 5_000
        rows.append(("range", "main thread", 1, phase, start, start + kernels * 5_000, "", f"measure > step > {phase}"))
    for number in range(kernels):
        name, at = HOSTILE if number == 7 else "gemm", number * 10_000
        phase = "forward" if number < kernels / 2 else "optimizer"
        path = f"measure > step > {phase}"
        rows.append(("launch", "main thread", 0, "cudaLaunchKernel", at, at + 4_000, "gemm", path))
        rows.append(("kernel", "stream 7", 0, name, at + 20_000, at + 29_000, "gemm", path))
    columns = ["track", "lane", "depth", "name", "start_ns", "end_ns", "class", "path"]
    return pd.DataFrame(rows, columns=columns).assign(run="small_ctx512_train_step")


@cache
def page_of_the_grid() -> str:
    """The page of the made-up grid of 60 runs, with all its figures."""
    return page(made_up_grid(), PROVENANCE, made_up_timeline(), images_of_the_grid(), "trace.json.gz")


@cache
def figures_asked() -> list[str]:
    """The names of the figures that the made-up grid's questions have."""
    runs = made_up_grid()["runs"].to_dict("records")
    return [name for question in questions_asked(runs) for name in question.figures]


@cache
def images_of_the_grid() -> dict[str, bytes]:
    """The largest figure in the place of each: the page is no smaller with it than with its own."""
    return dict.fromkeys(figures_asked(), drawn(on_paper(all_figures()["scaling"], made_up_grid()), ".png"))


@pytest.fixture(scope="module")
def grid_page(browser, tmp_path_factory):
    """The browser with the grid's page open; every table and figure of it has been started."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of_the_grid(), encoding="utf-8")
    browser.get(path.as_uri())
    start_everything(browser)
    return browser


@contextmanager
def another_tab(browser, path: Path):
    """The page at `path` in a tab of its own, closed afterwards; other tests keep theirs."""
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.get(path.as_uri())
    yield
    browser.close()
    browser.switch_to.window(first)


def start_everything(browser) -> None:
    """Unfolds what is folded, and scrolls to each table and figure until it has been started."""
    browser.execute_script("document.querySelectorAll('main > section > details').forEach(e => { e.open = true })")
    started = "const e = arguments[0]; return !!(e.chart || e.matches('.dataTable, [data-flame]:not(:empty)'))"
    for element in browser.find_elements("css selector", "[data-chart], [data-flame], table[data-rows]"):
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
        until(lambda element=element: browser.execute_script(started, element))


def choose(browser, name: str, value: str) -> None:
    """Chooses in one of the page's filters, as a reader does."""
    browser.execute_script(
        "const s = document.querySelector(`#filters select[name=${arguments[0]}]`);"
        "s.value = arguments[1]; s.dispatchEvent(new Event('change', {bubbles: true}))",
        name,
        value,
    )


def column_texts(browser, table: str, position: int) -> list[str]:
    cells = (
        "[...document.querySelectorAll(`#table-${arguments[0]} tbody tr`)].map(r => r.cells[arguments[1]].innerText)"
    )
    return browser.execute_script(f"return {cells}", table, position)


def test_the_page_of_60_runs_is_under_ten_megabytes():
    assert len(page_of_the_grid().encode()) < 10 * MEGABYTE


def test_nothing_in_the_page_asks_for_the_network():
    text = page_of_the_grid()
    assert "default-src 'none'" in text  # the browser refuses what a library might try
    assert "<link" not in text
    assert 'src="http' not in text


def test_there_are_no_messages_on_the_console(grid_page):
    assert [entry["message"] for entry in grid_page.get_log("browser")] == []


def marks_of(browser, kind: str) -> dict[str, int]:
    """How many marks of a kind ("symbol", "rect") each figure's data have become."""
    return browser.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('[data-chart]')].map("
        "e => [e.dataset.chart, e.querySelectorAll(`.role-mark.mark-${arguments[0]} path`).length]))",
        kind,
    )


def test_every_run_and_kernel_of_the_grid_is_a_mark_in_its_figures(grid_page):
    symbols, bars = marks_of(grid_page, "symbol"), marks_of(grid_page, "rect")
    assert set(symbols) == {*figures_asked()}
    steps, captured = 5 * 4, 60 - 2  # a training step is out of memory, and a capture of forward + backward incomplete
    assert symbols["phase_times"] == 3 * (2 * (steps - 1) + 1)  # phases x (with and without profiler, and a cross)
    assert symbols["launch_bound"] == captured
    assert bars["top_kernels"] == 2 * 10
    assert bars["class_shares"] == families_in(made_up_grid()["kernels"])
    assert symbols["attention"] == steps * 4 * 3  # of each part the time, and its shares of time and of FLOPs
    assert symbols["scaling"] == 2 * (3 * steps - 1) + 1  # against parameters and context, and the cross
    assert symbols["roofline"] == steps * (7 + 13)  # parts with FLOPs, and all parts


def families_in(kernels: pd.DataFrame) -> int:
    """How many families of classes the runs of inference and of training have, all together."""
    own = kernels[kernels["mode"] != "forward_backward"]
    return len({(run, name.split("/")[0]) for run, name in zip(own["run"], own["class"], strict=True)})


def test_a_chart_can_be_filtered_by_every_dimension_in_which_the_runs_differ(browser, tmp_path):
    tables = made_up_tables(models=("small",), contexts=(128, 512), precisions=("fp32", "bf16"))
    path = tmp_path / "report.html"
    path.write_text(page(tables, PROVENANCE, made_up_timeline(50), {}), encoding="utf-8")
    with another_tab(browser, path):
        start_everything(browser)
        names = [menu.get_attribute("name") for menu in browser.find_elements("css selector", "#filters select")]
        assert names == ["context_length", "mode", "precision"]
        assert marks_of(browser, "symbol")["launch_bound"] == 12
        choose(browser, "precision", "bf16")
        assert marks_of(browser, "symbol")["launch_bound"] == 6
        choose(browser, "mode", "forward")
        assert marks_of(browser, "symbol")["launch_bound"] == 2
        assert marks_of(browser, "symbol")["phase_times"] == 2 * 2 * 3  # shows training steps, whatever the mode
        assert set(column_texts(browser, "kernels", 3)) == {"bf16"}


def test_runs_out_of_memory_are_named_in_the_figures_and_the_summary(grid_page):
    text = grid_page.execute_script("return document.querySelector('[data-chart=phase_times]').textContent")
    assert "2.7B: out of memory" in text
    assert "2.7B" in grid_page.find_element("css selector", ".missing").text


def test_the_summary_answers_the_five_questions_and_where_time_is_lost(grid_page):
    questions = [one.text for one in grid_page.find_elements("css selector", "#summary .answers dt")]
    answers = [one.text for one in grid_page.find_elements("css selector", "#summary .answers dd")]
    assert [question[:3] for question in questions[:5]] == ["(a)", "(b)", "(c)", "(d)", "(e)"]
    assert "Where is time lost, and how much could be saved?" in questions
    assert len(answers) == len(questions) and all(answers)


def test_a_click_on_a_heading_sorts_by_numbers_and_the_keyboard_does_too(grid_page):
    heading = grid_page.find_element("css selector", "#table-timings thead th:nth-child(6)")
    grid_page.execute_script("arguments[0].scrollIntoView({block: 'center'}); arguments[0].click()", heading)
    ascending = until(lambda: sorted_numbers(column_texts(grid_page, "timings", 5), reverse=False))
    grid_page.execute_script("arguments[0].focus()", heading.find_element("css selector", "[tabindex]"))
    grid_page.switch_to.active_element.send_keys("\ue007")
    descending = until(lambda: sorted_numbers(column_texts(grid_page, "timings", 5), reverse=True))
    assert descending[0] > ascending[0]


def sorted_numbers(texts: list[str], reverse: bool) -> list[float] | None:
    numbers = [float(text.replace(",", "")) for text in texts if text != "–"]
    return numbers if numbers == sorted(numbers, reverse=reverse) and len(set(numbers)) > 1 else None


def test_the_filters_apply_to_all_tables_and_figures(grid_page):
    choose(grid_page, "model", "large")
    choose(grid_page, "context_length", "256")
    choose(grid_page, "mode", "train_step")
    for table in ("runs", "forward_time", "top_kernels", "class_shares", "attention", "kernels"):
        until(lambda table=table: set(column_texts(grid_page, table, 0)) == {"large"})
        assert set(column_texts(grid_page, table, 1)) == {"256"}
        assert set(column_texts(grid_page, table, 2)) == {"train_step"}
    assert marks_of(grid_page, "symbol")["attention"] == 4 * 3
    assert marks_of(grid_page, "symbol")["launch_bound"] == 1
    grid_page.find_element("css selector", "#filters button[type=reset]").click()
    until(lambda: set(column_texts(grid_page, "runs", 0)) != {"large"})
    assert marks_of(grid_page, "symbol")["attention"] == 20 * 4 * 3


def test_the_full_name_of_a_kernel_is_there_on_demand(grid_page):
    full = (
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>, std::array<char *,"
    )
    details = grid_page.execute_script(
        "return [...document.querySelectorAll('#table-other_kernels details')]"
        ".find(d => d.textContent.includes('CUDAFunctor_add'))"
    )
    assert full not in details.text
    grid_page.execute_script("arguments[0].scrollIntoView({block: 'center'})", details)
    details.find_element("css selector", "summary").send_keys("\ue007")
    assert full in until(lambda: full in details.text and details.text)


def test_hostile_names_are_text_in_tables_hover_labels_and_facts(grid_page):
    search = grid_page.find_element("css selector", "#all input[type=search]")
    search.send_keys("alert(1)")
    cells = until(lambda: {t.strip() for t in column_texts(grid_page, "kernels", 4)} == {HOSTILE} and HOSTILE)
    assert cells == HOSTILE
    assert grid_page.find_element("css selector", ".facts").text.count(HOSTILE) == 1
    assert grid_page.execute_script("return [...document.scripts].every(s => s.textContent.trim() !== 'alert(1)')")


def hover(browser, element, x: int = 0, y: int = 0) -> str:
    """The tooltip that appears over the middle of an element, or so many pixels from there."""
    from selenium.webdriver import ActionChains

    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    ActionChains(browser).move_to_element_with_offset(element, x, y).perform()
    shown = "const e = document.querySelector('#vg-tooltip-element.visible'); return e && e.innerText"
    return until(lambda: browser.execute_script(shown))


def test_the_full_name_of_a_kernel_appears_over_its_bar_as_text(browser, tmp_path):
    tables = made_up_tables(models=("small",), contexts=(512,), modes=("forward",), hostile=True).whole()
    kernels = tables["kernels"]
    tables["kernels"] = kernels.assign(total_ns=kernels["total_ns"].where(kernels["kernel"] != HOSTILE, 10**11))
    path = tmp_path / "report.html"
    path.write_text(page(tables, PROVENANCE, made_up_timeline(50), {}), encoding="utf-8")
    with another_tab(browser, path):
        start_everything(browser)
        bars = browser.find_elements("css selector", "[data-chart=top_kernels] .role-mark.mark-rect path")
        assert HOSTILE in hover(browser, bars[0])
        assert browser.execute_script("return document.querySelectorAll('#vg-tooltip-element script').length") == 0
        flame = browser.find_element("css selector", "[data-flame]")
        assert HOSTILE in browser.execute_script("return [...arguments[0].children].map(b => b.title).join()", flame)
        assert HOSTILE in flame.text
        canvas = browser.find_element("id", "timeline-canvas")
        browser.execute_script("arguments[0].focus()", canvas)
        canvas.send_keys(*4 * [ARROW_DOWN], *50 * [","], *7 * ["."])
        told = browser.find_element("id", "timeline-description").text
        assert told == f"{HOSTILE}: 9 µs, from 90 µs; in forward; device, stream 7"


def test_a_hostile_model_name_is_text_everywhere(browser, tmp_path):
    tables = made_up_tables(models=("small",), contexts=(512,), changes={"small_ctx512_train_step": OOM})
    tables = {name: table.assign(model=HOSTILE) for name, table in tables.whole().items()}
    path = tmp_path / "report.html"
    path.write_text(page(tables, PROVENANCE, made_up_timeline(50), {}), encoding="utf-8")
    with another_tab(browser, path):
        start_everything(browser)
        assert [entry["message"] for entry in browser.get_log("browser")] == []
        assert set(column_texts(browser, "runs", 0)) == {HOSTILE}
        labels = browser.execute_script("return document.querySelector('[data-chart=class_shares]').textContent")
        assert HOSTILE in labels
        assert HOSTILE in browser.find_element("css selector", ".missing").text


def test_the_timeline_zooms_by_its_buttons_and_comes_back(grid_page):
    figure_ = grid_page.find_element("css selector", "#figure-timeline")
    grid_page.execute_script("arguments[0].scrollIntoView({block: 'center'})", figure_)
    seen = "return document.getElementById('timeline-canvas').view.range"
    start, end = whole = grid_page.execute_script(seen)
    assert start == 0 < end
    for move, expected in (
        ("in", (0.25, 0.75)),
        ("right", (0.5, 1)),
        ("left", (0.25, 0.75)),
        ("out", (0, 1)),
        ("in", (0.25, 0.75)),
    ):
        figure_.find_element("css selector", f"[data-move={move}]").send_keys("\ue007")
        assert grid_page.execute_script(seen) == pytest.approx([part * end for part in expected], abs=1)
    figure_.find_element("css selector", "[data-move=all]").click()
    assert grid_page.execute_script(seen) == whole


def test_the_timeline_has_a_bar_per_range_launch_and_kernel(grid_page):
    bars = grid_page.execute_script("return document.getElementById('timeline-canvas').view.bars")
    assert Counter(bar["lane"] for bar in bars) == {0: 1, 1: 2, 2: 3000, 3: 3000}


def test_the_flame_view_holds_ranges_and_kernels_of_the_chosen_run(grid_page):
    run = "medium_ctx256_train_step"
    grid_page.execute_script(
        "const s = document.getElementById('flame-run'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))",
        run,
    )
    kernels = made_up_grid()["kernels"]
    total = f"{kernels[kernels['run'] == run]['total_ns'].sum() / 3 / 1e6:.4g}"
    told = "return document.getElementById('flame-description').textContent"
    assert until(lambda: grid_page.execute_script(told).startswith(f"step: {total} ms per step, 100.0 % of it"))
    labels = "return [...document.querySelectorAll('[data-flame] button')].map(b => b.textContent)"
    whole = grid_page.execute_script(labels)
    assert {"step", "forward", "backward", "optimizer", "computing softmax", "softmax_warp_forward"} <= set(whole)


def test_the_flame_view_opens_a_range_and_comes_back_by_the_keyboard(grid_page):
    def press(name: str) -> list[str]:
        button = f"[...document.querySelectorAll('[data-flame] button')].find(b => b.textContent === '{name}')"
        grid_page.execute_script(f"{button}.focus()")
        grid_page.switch_to.active_element.send_keys("\ue007")
        return grid_page.execute_script(
            "return [...document.querySelectorAll('[data-flame] button')].map(b => [b.textContent, b.style.width])"
        )

    assert not {"backward", "optimizer"} & {name for name, _ in press("attention")}
    assert [width for name, width in press("attention") if name == "attention"] == ["100%"]
    assert {"backward", "optimizer"} <= {name for name, _ in press("step")}


def test_the_page_begins_with_where_one_step_goes_by_phase_and_part_before_any_table(grid_page):
    figure = grid_page.find_element("css selector", ".step-picture")
    follows = "return arguments[0].compareDocumentPosition(arguments[1]) & Node.DOCUMENT_POSITION_FOLLOWING"
    first_table = grid_page.find_element("css selector", "table")
    assert grid_page.execute_script(follows, figure, first_table)
    phases = [one.text for one in figure.find_elements("css selector", ".phase")]
    assert phases == ["forward", "loss", "backward", "optimizer"]
    assert "attention" in figure.find_element("css selector", ".part-list").text
    caption = figure.find_element("css selector", "figcaption").text
    assert caption.startswith(
        "One step of xl at context 1024, training step: time on the device, mean of captured steps (3"
    )
    widths = "return [...document.querySelectorAll('.step-picture .track')].map(e => e.getBoundingClientRect().width)"
    forward, _, backward, _ = grid_page.execute_script(widths)
    kernels = made_up_grid()["kernels"]
    own = kernels[kernels["run"] == "xl_ctx1024_train_step"].groupby("phase", observed=True)["total_ns"].sum()
    assert forward / backward == pytest.approx(own["forward"] / own["backward"], rel=0.02)


def test_on_paper_nothing_is_wider_than_the_page_and_tables_break_between_rows(grid_page):
    across = {"width": 1032, "height": 730, "deviceScaleFactor": 1, "mobile": False}  # A4 between its margins
    grid_page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", across)
    grid_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    wide = (
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.plot'))"
        ".filter(e => e.getBoundingClientRect().right > 1033).map(e => e.outerHTML.slice(0, 80))"
    )
    assert grid_page.execute_script(wide) == []
    style = "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]"
    assert [grid_page.execute_script(style, of, "breakInside") for of in ("tr", "figure")] == ["avoid", "avoid"]
    assert grid_page.execute_script(style, "thead", "display") == "table-header-group"
    assert grid_page.find_elements("css selector", "[data-flame] button")
    grid_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen"})
    grid_page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_dark_reader_gets_a_dark_page_and_print_a_light_one(grid_page):
    def seen(scheme: str, media: str) -> str:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        grid_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        color = "return getComputedStyle(document.body).backgroundColor"
        return grid_page.execute_script(color)

    assert seen("light", "screen") == "rgb(255, 255, 255)"
    assert seen("dark", "screen") == "rgb(22, 25, 29)"
    ink = "return document.querySelector('[data-chart=scaling]').chart.view.signal('ink')"
    assert until(lambda: grid_page.execute_script(ink) == "#e6e8eb")
    text = "return document.querySelector('[data-chart=scaling] .role-axis-label text').getAttribute('fill')"
    assert grid_page.execute_script(text) == "#e6e8eb"
    grid_page.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert seen("dark", "print") == "rgb(255, 255, 255)"
    assert not grid_page.execute_script("return document.documentElement.classList.contains('dark')")
    assert until(lambda: grid_page.execute_script(ink) == "#1d2127")
    image = "return getComputedStyle(document.querySelector('#figure-scaling img')).display"
    assert grid_page.execute_script(image) == "block"
    grid_page.execute_script("dispatchEvent(new Event('afterprint'))")
    assert grid_page.execute_script("return document.documentElement.classList.contains('dark')")
    seen("light", "screen")
    assert grid_page.execute_script(image) == "none"


def test_on_a_phone_only_tables_and_figures_scroll_sideways(grid_page):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    grid_page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    until(lambda: grid_page.execute_script("return document.documentElement.scrollWidth") == 390)
    grid_page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("machine", ["cuda", "cpu"])
def test_a_grid_without_any_figures_still_gives_a_page(browser, tmp_path, machine):
    out = {f"small_ctx512_{mode}": OOM for mode in ("forward", "forward_backward", "train_step")}
    tables = made_up_tables(models=list(MODELS)[:1], contexts=(512,), changes=out)
    tables["runs"]["device"] = machine
    path = tmp_path / "report.html"
    path.write_text(page(tables, PROVENANCE, made_up_timeline().iloc[:0], {}), encoding="utf-8")
    with another_tab(browser, path):
        start_everything(browser)
        assert [entry["message"] for entry in browser.get_log("browser")] == []
        assert "out of memory" in browser.find_element("css selector", ".missing").text
        assert "No capture holds kernels" in browser.find_element("id", "figure-flame").text
