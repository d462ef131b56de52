"""A figure looks the same whatever fonts a machine has."""

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from profile_grid.figures.paper import SVG_NAMESPACE, drawn
from profile_grid.figures.theme import FONT
from tests.profile_grid.made_up_font import font

ROOT = Path(__file__).parents[2]
FAMILY = FONT.split(",")[0]
CHART = {
    "data": {"values": [{"a": "text", "b": 1}]},
    "mark": "bar",
    "encoding": {"x": {"field": "b", "type": "quantitative"}, "y": {"field": "a", "type": "nominal"}},
    "config": {"font": FONT},
}
AS_FIGURES_ARE_DRAWN = "from profile_grid.figures.paper import vl_convert"
WITH_FONTS_OF_THE_SYSTEM = "import vl_convert"


def output(program: str, environment: dict[str, str]) -> list[str]:
    """The lines that a process of its own prints which runs this program."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)} | environment
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def pictures(importing: str, environment: dict[str, str]) -> list[str]:
    """The chart as SVG, and as PNG in hexadecimal digits."""
    draw = f"print(vl_convert.vegalite_to_svg({CHART})); print(vl_convert.vegalite_to_png({CHART}).hex())"
    return output(f"{importing}; {draw}", environment)


@pytest.fixture(params=["XDG_CONFIG_HOME", "FONTCONFIG_FILE"])
def another_font(request, tmp_path) -> dict[str, str]:
    """The environment of a machine that has a font of the same name as that of the figures."""
    (tmp_path / "another.ttf").write_bytes(font(FAMILY))
    configuration = tmp_path / "fontconfig" / "fonts.conf"
    configuration.parent.mkdir()
    configuration.write_text(f"<fontconfig><dir>{tmp_path}</dir></fontconfig>")
    return {request.param: str(configuration if request.param == "FONTCONFIG_FILE" else tmp_path)}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere fonts are not looked up by fontconfig")
def test_another_font_of_the_same_name_changes_no_figure(another_font):
    svg, png = pictures(AS_FIGURES_ARE_DRAWN, another_font)
    assert [svg, png] == pictures(AS_FIGURES_ARE_DRAWN, {})
    for ours, systems in zip((svg, png), pictures(WITH_FONTS_OF_THE_SYSTEM, another_font), strict=True):
        assert ours != systems, "the other font is not read at all, so this test says nothing"


@pytest.mark.parametrize("environment", [{}, {"FONTCONFIG_FILE": "/any/fonts.conf"}])
def test_programs_that_the_process_starts_later_find_the_fonts_of_the_system(environment):
    program = f"{AS_FIGURES_ARE_DRAWN}; import os; print(os.environ.get('FONTCONFIG_FILE'))"
    assert output(program, environment) == [str(environment.get("FONTCONFIG_FILE"))]


def test_a_long_label_has_the_width_for_which_there_is_room_in_browsers_with_wider_fonts_too():
    label = "xl-2026 · 2048 · training step · checkpoints of 8-2 blocks, × 1.5 (42 %)"
    whole = {"config": CHART["config"] | {"axis": {"labelLimit": 0}}}
    svg = ElementTree.fromstring(drawn(CHART | whole | {"data": {"values": [{"a": label, "b": 1}]}}, ".svg"))
    (element,) = [text for text in svg.iter(f"{{{SVG_NAMESPACE}}}text") if text.text == label]
    left = float(re.search(r"translate\(([\d.]+),", svg.find(f"{{{SVG_NAMESPACE}}}g").get("transform"))[1])
    assert left - 20 < float(element.get("textLength")) < left - 5
    assert element.get("lengthAdjust") == "spacingAndGlyphs"


@pytest.mark.parametrize(("weight", "expected"), [("bold", (277.8, 833.0)), ("normal", (222.2, 833.0))])
def test_each_line_of_a_title_has_the_width_that_it_has_in_the_font_of_the_figures(weight, expected):
    lines = ["i" * 100, "M" * 100]
    chart = CHART | {"title": {"text": lines, "fontSize": 10, "fontWeight": weight}}
    svg = ElementTree.fromstring(drawn(chart, ".svg"))
    widths = {line.text: float(line.get("textLength")) for line in svg.iter(f"{{{SVG_NAMESPACE}}}tspan")}
    assert widths == dict(zip(lines, expected, strict=True)), "hundred times thousandths of the size"
