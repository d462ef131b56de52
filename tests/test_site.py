"""The site below docs/ can be built, leads where it says, and can be read on a narrow screen."""

import re
import shutil
from html import unescape

from docs.make import DOCS, PAGES, site
from docs.pages import pages
from tests.browser import needs_browser

MADE = site()
BUILT = pages()


def test_every_link_leads_to_a_file_and_to_an_anchor_that_is_there():
    broken = []
    for name, text in MADE.items():
        for link in map(unescape, re.findall(r'(?:href|src)="([^"]*)"', text)):
            path, _, anchor = link.partition("#")
            if link.startswith(("http:", "https:")):
                continue
            there = path in MADE or (DOCS / path).resolve() in BUILT or (DOCS / path).exists()
            if not there or (anchor and f'id="{anchor}"' not in MADE.get(path or name, "")):
                broken.append((name, link))
    assert broken == []


def test_every_command_setting_and_column_has_its_place():
    for named in ("kernel-tables record", "kernel-tables diff", "<code>read_packed</code>"):
        assert named in MADE["commands.html"]
    assert "<code>timing.warmup_steps</code>" in MADE["settings.html"]
    assert "<code>gpu_time_ns</code>" in MADE["columns.html"] or "<code>total_ns</code>" in MADE["columns.html"]


def test_nothing_of_a_page_is_fetched_or_run():
    assert all("<script" not in text and 'src="http' not in text for text in MADE.values())


@needs_browser
def test_no_page_is_wider_than_a_telephone(browser, tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.html", "tables", "*.py"))
    for name, text in MADE.items():
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True},
    )
    wide = {}
    for page in PAGES:
        browser.get((tmp_path / "docs" / f"{page.stem}.html").as_uri())
        taken = browser.execute_script("return document.documentElement.scrollWidth")
        if taken > 390:
            wide[page.stem] = taken
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wide == {}
