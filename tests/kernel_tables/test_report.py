"""The page of one capture: what it holds is what the tables say, whatever the names, and it says what it leaves out."""

import json
import re
from pathlib import Path

import pytest

from kernel_tables.__main__ import main
from kernel_tables.diagnosis.scope import Scope
from kernel_tables.report import report, tables, timeline
from kernel_tables.report.report import report as page_of
from kernel_tables.trace import Trace
from tests.browser import needs_browser, until
from tests.kernel_tables.page_bars import bars_in
from tests.kernel_tables.synthetic import Synthetic

CAPTURES = Path(__file__).parent.parent / "captures"
HOSTILE = "</script><script>document.title='taken'</script><b>"


def synthetic() -> Synthetic:
    """Two steps of a forward range with one kernel each, 3 and 5 us long, and a copy outside of them."""
    made = Synthetic().range("measure", 0, 90_000)
    for step, length in ((0, 3_000), (40_000, 5_000)):
        made = made.range("step", step, step + 30_000).range("forward", step + 10, step + 20_000)
        made = made.range(HOSTILE, step + 20, step + 15_000).kernel("ampere_sgemm_64x32_nn", step + 30, duration=length)
    return made.memcpy(at=85_000, duration=2_000, size=4_096)


@pytest.fixture
def capture(tmp_path) -> Path:
    return synthetic().write(tmp_path / "capture.sqlite")


@pytest.fixture(scope="module")
def tiny() -> str:
    with Trace(CAPTURES / "tiny_2025.3.1.sqlite.gz") as trace:
        return page_of(trace)


def held(html: str, name: str):
    return json.loads(re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', html)[1])


def test_the_flame_view_of_a_step_conserves_the_time_of_its_kernels_and_memory_operations(tiny):
    nodes = held(tiny, "flames")["step"]
    assert nodes["ms"][0] == pytest.approx((5_932_568 + 18_688) / 3 / 1e6)  # what is under `measure`, three steps
    children = [0.0] * len(nodes["ms"])
    for parent, ms in zip(nodes["parent"][1:], nodes["ms"][1:], strict=True):
        children[parent] += ms
    assert all(below == pytest.approx(own) for own, below in zip(nodes["ms"], children, strict=True) if below)


def test_the_summary_tells_how_long_a_step_takes_and_where_it_goes(tiny):
    told = " ".join(re.sub(r"<[^>]+>", " ", tiny).split())
    assert "A step, mean of 3 20.6 ms wall time, from start to end GPU busy 9.6 % idle 90.4 %" in told
    assert "First finding: launch_bound saves at most 13.1 ms (64&nbsp;%) The GPU waits 13.1 ms of a step" in told
    assert "tiny_2025.3.1.sqlite.gz · NVIDIA H200 · NVIDIA Nsight Systems 2025.3.2.0" in told
    assert "idle 18.6 ms 90.4 %" in told, "a bar of the picture"


def test_the_timeline_has_a_bar_for_each_range_launch_and_activity_of_the_middle_step(capture):
    with Trace(capture) as trace:
        html = page_of(trace)
    inner = f"forward > {HOSTILE}"
    assert bars_in(held(html, "timeline-bars"), held(html, "names")["full"]) == [
        ("ranges, thread 1", "step", None, 0, 30_000),
        ("ranges, thread 1, level 2", "forward", None, 10, 19_990),
        ("ranges, thread 1, level 3", HOSTILE, "forward", 20, 14_980),
        ("API calls, thread 1", "cudaLaunchKernel", inner, 30, 1),
        ("device 0, stream 7", "ampere_sgemm_64x32_nn", inner, 35, 5_000),
    ]


def test_what_has_no_room_is_counted(capture, monkeypatch):
    monkeypatch.setattr(tables, "MAX_ROWS", 1)
    monkeypatch.setattr(timeline, "MAX_LEAVES", 0)
    monkeypatch.setattr(timeline, "MAX_BARS", 3)
    monkeypatch.setattr(report, "MAX_NAME_CHARS", 5)
    with Trace(capture) as trace:
        html = page_of(trace)
    assert "4 more ranges have no room here" in html
    assert ">1 row.</span>" in html
    assert "1 rows" not in html
    assert "The kernel with the most time is sgemm 64×32 nn: 4.00 µs (100.0 %), 1 launch." in html
    assert "the 1 kernels in ranges with the least time are shown together as “(smaller ones)”." in html
    assert "Only its first 30 ns of 30.0 µs are shown; kernel-tables trace writes all of it." in html
    assert max(map(len, held(html, "names")["full"])) <= 6
    assert held(html, "flames")["step"]["ms"][0] == pytest.approx(0.004)


def test_a_capture_without_steps_is_shown_whole_and_one_without_kernels_says_what_is_wrong(tmp_path):
    with Trace(
        Synthetic().range("epoch", 0, 100).kernel("f", at=10, duration=50).write(tmp_path / "c.sqlite")
    ) as trace:
        html = page_of(trace)
    assert "No range named &#39;step&#39; holds work: this page is about the whole capture." in html
    with Trace(CAPTURES / "tiny_2022.4.2.sqlite.gz") as trace:
        html = page_of(trace)
    assert "Do not trust these figures:" in html
    assert "No kernel and no memory operation was recorded" in html


def test_kernels_that_were_launched_before_the_capture_leave_the_timeline_its_room(tmp_path, monkeypatch):
    monkeypatch.setattr(timeline, "MAX_BARS", 3)
    made = Synthetic()
    for start in (1000, 2000, 3000, 4000):
        made.kernel("f", at=None, start=start, duration=50)
    with Trace(made.write(tmp_path / "capture.sqlite")) as trace:
        html = page_of(trace)
    assert "Only its first 3.00 µs of 3.05 µs are shown; kernel-tables trace writes all of it." in html
    assert held(html, "timeline-bars")["count"] == [3]


def test_shares_of_a_process_on_several_devices_are_of_each_devices_own_time(tmp_path):
    made = Synthetic().range("step", 0, 1000).range("forward", 0, 900)
    for device, duration in ((0, 800), (1, 400)):
        made.kernel("f", at=10 + device, start=100, duration=duration, device=device)
    with Trace(made.write(tmp_path / "c.sqlite")) as trace:
        html = page_of(trace)
    told = " ".join(re.sub(r"<[^>]+>", " ", html).split())
    assert "The step 1.00 µs wall time" in told
    assert "GPU busy 60.0 % idle 40.0 %" in told
    assert "forward 600 ns 60.0 %" in told and "idle 400 ns 40.0 %" in told
    assert "Times and launches of one step are means over 2 devices." in told
    assert "The kernel with the most time is f: 600 ns (100.0 %), 1 launch." in told


def test_a_capture_made_on_a_cpu_is_said_to_be_one(tmp_path):
    made = Synthetic().range("step", 0, 100).kernel("aten::mm", at=10, duration=50, device=-1)
    with Trace(made.write(tmp_path / "capture.sqlite")) as trace:
        html = page_of(trace)
    assert "No GPU was used: a kernel is an outermost operator of PyTorch, and its" in html
    assert 'CPU busy with PyTorch</dt><dd>50.0 %</dd><dd class="note">other host time 50.0 %</dd>' in html
    assert "operators&#39; time" in html
    assert 'content: "operators\\27  time "' in html  # a style sheet does not read HTML's escapes
    assert "GPU time" not in html and "on the device" not in html
    assert held(html, "timeline-bars")["lanes"] == ["ranges, thread 1", "processor, stream 7"]


def test_names_and_the_file_s_name_are_text_and_nothing_asks_for_the_network(capture):
    with Trace(capture) as trace:
        html = page_of(trace, title=HOSTILE)
    assert html.count("<script") == 5
    assert "<b>" not in html
    assert "default-src 'none'" in html
    assert "http" not in html.replace("http-equiv", "")


def test_memory_operations_say_what_they_moved_and_how_fast(capture):
    with Trace(capture) as trace:
        text = re.sub(r"(?:<[^>]+>|\s)+", " ", page_of(trace).partition('id="memory"')[2])
    assert "4.00 KiB" in text
    assert "2.00 µs 20.0 %" in text  # of the 10 us that all of the capture takes
    assert "2.05 GB/s" in text


def test_the_command_writes_a_whole_file_and_never_over_a_capture(capture, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(capture)]) == 0
    assert capsys.readouterr().out == "capture.html\n"
    assert (tmp_path / "capture.html").read_text().startswith("<!doctype html>")
    assert main(["report", str(capture), "-o", str(capture)]) == 2
    assert "never written over" in capsys.readouterr().err
    (tmp_path / "no.sqlite").write_text("no capture")
    assert main(["report", "no.sqlite", "-o", "none.html"]) == 2
    assert not (tmp_path / "none.html").exists()


@pytest.fixture(scope="module")
def opened(browser, tiny, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(tiny, encoding="utf-8")
    browser.get(path.as_uri())
    return browser


@needs_browser
def test_the_page_opens_without_a_message_and_works_by_the_keyboard(opened):
    assert [entry["message"] for entry in opened.get_log("browser")] == []
    canvas = opened.find_element("id", "timeline-canvas")
    seen = "return document.getElementById('timeline-canvas').view.range"
    _, whole = opened.execute_script(seen)
    opened.execute_script("arguments[0].focus()", canvas)
    for key, expected in (("+", (0.25, 0.75)), ("\ue014", (0.5, 1)), ("-", (0, 1)), ("+", (0.25, 0.75)), ("0", (0, 1))):
        opened.switch_to.active_element.send_keys(key)
        assert opened.execute_script(seen) == pytest.approx([part * whole for part in expected], abs=1), key
    told = opened.find_element("id", "timeline-description")
    moves = (
        ("\ue015", "step: "),
        ("\ue015", "backward: "),
        (".", "optimizer: "),
        (".", "optimizer: "),
        (",", "backward: "),
    )
    for key, expected in moves:
        opened.switch_to.active_element.send_keys(key)
        assert told.text.startswith(expected), key
    chosen = "const { chosen, bars } = arguments[0].view; return bars[chosen]"
    bar = opened.execute_script(chosen, canvas)
    opened.switch_to.active_element.send_keys("\ue007")
    assert opened.execute_script(seen) == [bar["start"], bar["end"]]
    assert "thread 1, level 2" in told.text
    texts = "return [...document.querySelectorAll('[data-flame] button')].map(b => b.textContent)"
    button = "[...document.querySelectorAll('[data-flame] button')].find(b => b.textContent === 'optimizer')"
    opened.execute_script(f"{button}.focus()")
    opened.switch_to.active_element.send_keys("\ue007")
    assert "backward" not in opened.execute_script(texts)
    assert opened.switch_to.active_element.text == "optimizer"  # so that the keyboard goes on from there


@needs_browser
def test_tables_are_sorted_searched_and_tell_full_names_on_demand(opened):
    def column(number: int) -> list[str]:
        rows = "[...document.querySelectorAll('#table-kernels tbody tr')].filter(r => !r.hidden)"
        return opened.execute_script(f"return {rows}.map(r => r.cells[{number}].textContent)")

    heading = opened.find_elements("css selector", "#table-kernels th button")[1]
    opened.execute_script("arguments[0].focus()", heading)
    opened.switch_to.active_element.send_keys("\ue007")
    launches = [int(text.replace(",", "")) for text in column(1)]
    assert launches == sorted(launches, reverse=True) and len(launches) == 20
    search = opened.find_element("css selector", "[data-search=kernels]")
    search.send_keys("reducefunctor_no_such")
    assert column(0) == []
    search.clear()
    search.send_keys("sgemm")
    assert column(0) and all("gemm" in text for text in column(7))
    first = opened.find_element("css selector", "#table-kernels tr:not([hidden]) details")
    opened.execute_script("arguments[0].open = true", first)
    assert until(lambda: "gemm" in first.find_element("css selector", "code").text)
    search.clear()
    search.send_keys(" ")


@needs_browser
def test_the_page_fits_a_phone_paper_and_a_dark_room(opened):
    def emulated(width: int, media: str, scheme: str) -> None:
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})

    wide = "return document.documentElement.scrollWidth"
    emulated(390, "screen", "light")
    assert until(lambda: opened.execute_script(wide) == 390)
    emulated(1032, "print", "dark")
    out = (
        "return [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 1033)"
        ".map(e => e.outerHTML.slice(0, 90))"
    )
    assert until(lambda: opened.execute_script(out) == [])
    assert opened.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    emulated(1280, "screen", "dark")
    assert opened.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(22, 25, 29)"
    emulated(1280, "screen", "light")


def test_what_cannot_be_seen_in_a_name_stands_as_an_escape(tmp_path):
    made = Synthetic().range("step", 0, 100).range("a\x00\u202eb", 0, 90).kernel("f", at=10, duration=50)
    with Trace(made.write(tmp_path / "capture.sqlite")) as trace:
        html = page_of(trace)
    assert "a\\x00\\u202eb" in html and not {"\x00", "\u202e"} & set(html)
    assert "a\x00\u202eb" in held(html, "names")["full"]  # the same to scripts


def test_the_page_says_which_program_was_recorded_and_nothing_that_a_capture_makes_up(tmp_path):
    made = synthetic().metadata("CAPTURE_BACKEND", "torch").metadata("EXPORT_PRODUCT_VERSION", "2.11")
    window = {"program": "python <b>train.py", "torch": "2.11", "first": 6, "done": 3}
    made.metadata("RECORDED_WINDOW", json.dumps(window))
    with Trace(made.write(tmp_path / "c.sqlite")) as trace:
        html = page_of(trace)
    assert "<code>python &lt;b&gt;train.py</code>" in html
    assert "PyTorch 2.11 · steps 6 to 8" in html
    for broken in ("no JSON", "[1]", '{"first": "6", "done": true}'):
        path = synthetic().metadata("RECORDED_WINDOW", broken).write(tmp_path / "broken.sqlite")
        with Trace(path) as trace:
            assert "steps 6" not in page_of(trace)


def test_communication_is_a_part_of_its_phase_in_the_picture(tmp_path):
    made = Synthetic().range("step", 0, 1000).range("backward", 10, 900).range("Linear", 20, 800)
    made.kernel("aten::mm", at=30, device=-1).kernel("gloo:all_reduce", at=40, duration=200, device=-1)
    with Trace(made.write(tmp_path / "c.sqlite")) as trace:
        found = {leaf.kernel: leaf.ranges for leaf in timeline.step_leaves(Scope(trace))}
    assert found == {"aten::mm": ("backward", "Linear"), "gloo:all_reduce": ("backward", "communication")}


def test_a_closure_and_a_model_have_their_phases_in_the_picture(tmp_path):
    made = Synthetic().range("step", 0, 1000).range("Optimizer.step#Adam.step", 10, 900)
    made.range("Net", 20, 100).kernel("f", at=30)
    made.range("backward", 200, 600).range("Net", 210, 500).kernel("b", at=220).kernel("u", at=700)
    with Trace(made.write(tmp_path / "c.sqlite")) as trace:
        found = {leaf.kernel: leaf.ranges for leaf in timeline.step_leaves(Scope(trace))}
    assert found == {"f": ("forward", "Net"), "b": ("backward", "Net"), "u": ("optimizer (Adam)",)}
