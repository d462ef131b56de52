"""The page of one capture: it holds what the tables say, whatever the names, and says what it leaves out."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

import kernel_tables
from kernel_tables.check import losses
from kernel_tables.page import page
from kernel_tables.page.page import Leaf, step_rows
from kernel_tables.steps import Scope
from tests.kernel_tables.synthetic import Synthetic

CAPTURES = Path(__file__).parent.parent / "captures"
HOSTILE = "</script><script>document.title='taken'</script><b>\x00\u202e"
SHOWN = "&lt;/script&gt;&lt;script&gt;document.title=&#39;taken&#39;&lt;/script&gt;&lt;b&gt;\\x00\\u202e"


def page_of(capture: Path) -> str:
    with kernel_tables.read(capture) as profile:
        page.write_page(profile, capture.with_suffix(".html"))
    return capture.with_suffix(".html").read_text()


@pytest.fixture
def capture(tmp_path) -> Path:
    """Two steps of a forward range with one kernel each, 3 and 5 us long, and a copy outside of them."""
    made = Synthetic().range("measure", 0, 90_000)
    for step, length in ((0, 3_000), (40_000, 5_000)):
        made = made.range("step", step, step + 30_000).range("forward", step + 10, step + 20_000)
        made = made.range(HOSTILE, step + 20, step + 15_000).kernel("ampere_sgemm_64x32_nn", step + 30, duration=length)
    return made.memcpy(at=85_000, duration=2_000).write(tmp_path / "capture.sqlite")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("tiny") / "tiny.html"
    with kernel_tables.read(CAPTURES / "tiny_2025.3.1.sqlite.gz") as profile:
        page.write_page(profile, path)
    return path.read_text()


def data_of(html: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)[1])


def words_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_page_says_how_long_a_step_takes_and_where_it_goes(tiny):
    words = words_of(tiny)
    assert "A step, mean of 3 20.6 ms wall time, from start to end GPU busy 9.6 % idle 90.4 %" in words
    assert "First finding: launch_bound saves at most 13.1 ms (64&nbsp;%) The GPU waits 13.1 ms of a step" in words
    assert "tiny_2025.3.1.sqlite.gz · NVIDIA H200 · NVIDIA Nsight Systems 2025.3.2.0" in words
    assert "backward 974 µs 4.7 % 270" in words and "idle 18.6 ms 90.4 %" in words, "rows of the step"
    nodes = data_of(tiny)
    assert nodes["ms"][0] == pytest.approx((5_932_568 + 18_688) / 3 / 1e6)  # what is under `measure`, three steps
    children = [0.0] * len(nodes["ms"])
    for parent, ms in zip(nodes["parent"][1:], nodes["ms"][1:], strict=True):
        children[parent] += ms
    assert all(below == pytest.approx(own) for own, below in zip(nodes["ms"], children, strict=True) if below)


def test_names_are_text_and_nothing_asks_for_the_network(capture):
    html = page_of(capture)
    assert html.count("<script") == 2 and "<b>" not in html and SHOWN in html
    assert not {"\x00", "\u202e"} & set(html)
    assert "default-src 'none'" in html and "http" not in html.replace("http-equiv", "")


def test_what_has_no_room_is_counted(capture, monkeypatch):
    for limit, value in (("MAX_ROWS", 1), ("MAX_LEAVES", 0)):
        monkeypatch.setattr(page, limit, value)
    html = page_of(capture)
    assert "1 more have no room here; kernel-tables prints all." in html
    assert "The 1 kernels in ranges with the least time are shown together as “(smaller ones)”." in html
    assert data_of(html)["ms"][0] == pytest.approx(0.004)


def test_of_an_odd_capture_it_is_said_what_it_is(tmp_path):
    made = Synthetic().range("epoch", 0, 100).kernel("f", at=10, duration=50).write(tmp_path / "a")
    assert "No range named “step” holds work: this page is about the whole capture." in page_of(made)
    html = page_of(Synthetic().range("step", 0, 100).write(tmp_path / "b"))
    assert "Do not trust these figures:" in html and "No kernel and no memory operation was recorded" in html
    made = Synthetic().range("step", 0, 1000).range("forward", 0, 900)
    for device, duration in ((0, 800), (1, 400)):
        made.kernel("f", at=10 + device, start=100, duration=duration, device=device)
    words = words_of(page_of(made.write(tmp_path / "c")))
    assert "GPU busy 60.0 % idle 40.0 %" in words and "forward 600 ns 60.0 %" in words and "idle 400 ns 40.0 %" in words
    assert "Times and launches of one step are means over 2 devices." in words
    window = json.dumps({"program": "python <b>train.py", "torch": "2.11"})
    made = Synthetic().metadata("CAPTURE_BACKEND", "torch").metadata("RECORDED_WINDOW", window)
    html = page_of(made.range("step", 0, 100).kernel("aten::mm", at=10, duration=50, device=-1).write(tmp_path / "d"))
    assert "<code>python &lt;b&gt;train.py</code>" in html and "PyTorch 2.11" in html
    assert 'CPU busy with PyTorch</dt><dd>50.0 %</dd><dd class="note">other host time 50.0 %</dd>' in html
    assert "No GPU was used: a kernel is an outermost operator" in html and "GPU time" not in html


@pytest.mark.parametrize(
    "name",
    ["dur_overflow.json", "graph_underrecorded.json", "start_before_launch.json"],
)
def test_losses_stand_before_the_time_of_a_step_and_no_share_is_above_all(name, tmp_path):
    with kernel_tables.read(Path(__file__).parent / "reports" / f"{name}.gz") as profile:
        page.write_page(profile, tmp_path / "page.html")
        lost = [finding.message for finding in losses(profile)]
    words = unescape(words_of((tmp_path / "page.html").read_text()))
    assert lost and f"Summary Do not trust these figures: {lost[0]}" in words
    assert max(float(share) for share in re.findall(r"([\d.]+)\s%", words)) <= 100


def test_each_part_of_a_step_is_in_its_phase(tmp_path):
    made = Synthetic().range("step", 0, 1000).range("Optimizer.step#Adam.step", 10, 900)
    made.range("Net", 20, 100).kernel("f", at=30)
    made.range("backward", 200, 600).range("Net", 210, 500).kernel("b", at=220).kernel("gloo:all_reduce", at=230)
    with kernel_tables.read(made.kernel("u", at=700).write(tmp_path / "c.sqlite")) as profile:
        found = {leaf.kernel: leaf.ranges for leaf in page.step_leaves(Scope(profile))}
    own = {"f": ("forward", "Net"), "b": ("backward", "Net"), "u": ("optimizer (Adam)",)}
    assert found == own | {"gloo:all_reduce": ("backward", "communication")}


def test_the_rows_of_a_step_add_up_and_have_the_time_in_which_nothing_ran():
    times = {"optimizer": 10, "forward > block": 10, "forward > block > mlp": 25, "backward": 30, "": 0.1}
    leaves = [Leaf(tuple(path.split(" > ")) if path else (), "k", "gemm", ms, 0.5) for path, ms in times.items()]
    rows = step_rows(leaves, step_ms=80, idle_ms={"idle": 5})
    assert [(*label, ns / 1e6, launches) for label, ns, _, launches in rows] == [
        (0, "forward", 35, 1), (1, "block", 35, 1), (2, "mlp", 25, 0.5), (2, "(own)", 10, 0.5),
        (0, "backward", 30, 0.5), (0, "optimizer", 10, 0.5), (0, "(no range)", 0.1, 0.5), (0, "idle", 5, None),
    ]  # fmt: skip
    assert rows[0][2] == 35 / 80 and step_rows(leaves)[0][2] == 35e6 / 75.1e6 and step_rows([]) == []
