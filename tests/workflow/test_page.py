"""The page of a grid: one offline file, in which names from outside are text, and which fits its window."""

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.workflow.small_tables import make_run, write_tables
from workflow.charts import save, text_chart, titled
from workflow.scripts import page
from workflow.tables import make_table

HOSTILE = "</script><script>window.taken = 1</script><img src=x onerror='window.taken = 2'>\"`$|&amp;"
ROWS = "".join(f"| kernel {number} | {number}.0 ms, {100 - number} % |\n" for number in range(30))
WIDE = " | ".join(f"a long heading {number}" for number in range(20))
DOCUMENT = f"""# (b) Which kernel takes most?

`gemm` takes 40 %: {HOSTILE}

- Because of {HOSTILE}

| kernel | time | {WIDE} |
|:--|--:|{":--|" * 20}
{ROWS}
![Kernels with the most time](../figures/top_kernels.svg)

- time: {"of-one-word-without-a-place-to-break" * 9}
"""
NOT_ANSWERED = "# (l) What limits the kernels?\n\nNot answered: nothing was counted.\n"


def write_page(folder: Path, hostile: str = "", **run) -> Path:
    """The page of a grid whose kernels, models and documents have this text in their names."""
    rows = make_run("shown", mode="train_step", model=f"tiny{hostile}", **run)
    for row in rows["kernels"]:
        row |= {"kernel": row["kernel"] + hostile, "range": row["range"] + hostile}
    write_tables(folder / "tables", rows, make_run("other", model="big", timing_status="out_of_memory"))
    finding = {"run": "shown", "gain_percent": 12.5, "abstained": False, "advice": f"fuse{hostile}", "message": hostile}
    lost = folder / "tables" / "time_lost.parquet"
    make_table("time_lost").reindex([0]).assign(**finding).to_parquet(lost)
    save(titled(text_chart(f"nothing {hostile}"), "A result", "GPU time"), folder / "top_kernels.svg")
    texts = {"b_top_kernels": DOCUMENT, "l_counters": NOT_ANSWERED}
    documents = [folder / f"{name}.md" for name in texts]
    for path in documents:
        path.write_text(texts[path.stem])
    tables = [*map(str, (folder / "tables").glob("*.parquet"))]
    page.main(tables, documents, [folder / "top_kernels.svg"], "shown", str(folder / "report.html"))
    return folder / "report.html"


def read_words(html: str) -> str:
    """What a reader sees below the list of contents."""
    html = re.sub(r"<(script|style|nav)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", "", html).split())


def test_the_page_begins_with_a_verdict_and_what_to_do_before_picture_answers_and_evidence(tmp_path):
    words = read_words(write_page(tmp_path / "grid", device_name="NVIDIA H200").read_text())
    parts = "tiny at context 128, training step|a step takes 4.00 ms, 128,000 tokens per second|What to do"
    parts += "|Fuse: saves at most 12.5 % of the step|Where its time goes|Answers|Not measured|Evidence|Inside a step"
    places = [words.index(part) for part in parts.split("|")]
    assert places == sorted(places) and words.count("Evidence") == 1, "a document of one paragraph has none"
    assert "1.1 % of the GPU's peak in fp32" in words  # 3 x 1e9 FLOP in 4 ms, of 67 TFLOP/s
    assert "peak" not in read_words(write_page(tmp_path / "other", device_name="Some CPU").read_text())


def test_the_page_loads_nothing_and_a_figure_stands_where_its_document_shows_it(tmp_path):
    html = write_page(tmp_path / "grid", HOSTILE).read_text()
    assert "default-src 'none'" in html
    loaded = re.findall(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"([^\"]*)", html)
    assert len(loaded) == 1 and loaded[0].startswith("data:image/svg+xml;base64,")
    assert html.index('id="b_top_kernels"') < html.index('alt="Kernels with the most time"') < html.index("Evidence")
    assert "../figures" not in html


@pytest.fixture
def browser():
    """A headless Chromium with the window of a phone."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-background-networking"):
        options.add_argument(f"--{flag}")
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    phone = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    yield driver
    driver.quit()


OUTSIDE = """
const inside = (e) => { for (let p = e.parentElement; p; p = p.parentElement)
  if (["auto", "scroll", "hidden"].includes(getComputedStyle(p).overflowX) && p !== document.body) return true; };
return [...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().width && !inside(e)
  && e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map((e) => e.outerHTML.slice(0, 200));
"""


@pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver") and find_spec("selenium")),
    reason="chromium, chromedriver or selenium is not installed",
)
def test_hostile_names_are_text_everything_works_and_nothing_is_wider_than_a_phone(tmp_path, browser):
    run = browser.execute_script
    browser.get(write_page(tmp_path / "grid", HOSTILE).as_uri())
    run("document.querySelectorAll('details').forEach((one) => one.open = true)")
    assert run("return [typeof window.taken, document.images.length]") == ["undefined", 1]
    said = run("return document.body.innerText")
    assert said.count(HOSTILE.replace("`", "").partition("$")[0].strip('"')) >= 3
    flame = "document.querySelector('[data-flame]')"
    assert f"computing attention scores{HOSTILE}" in run(f"return {flame}.innerText")
    assert run(OUTSIDE) == [] and run("return document.documentElement.scrollWidth") <= 390
    run("document.querySelectorAll('details th button')[1].click()")
    rows = run("return [...document.querySelectorAll('details tbody tr')].filter(r => !r.hidden).map(r => r.innerText)")
    assert [row.split()[1] for row in rows[:20]] == [str(number) for number in range(29, 9, -1)]
    run(f"[...{flame}.children].find(bar => bar.textContent === 'optimizer').click()")
    assert "backward" not in run(f"return {flame}.innerText")
    assert browser.get_log("browser") == []
