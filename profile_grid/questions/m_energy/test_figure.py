"""The figure of (m), drawn from made-up windows."""

import pytest

from profile_grid.figures.paper import on_paper
from profile_grid.questions.m_energy.figure import FIGURES
from profile_grid.questions.m_energy.test_answer import counted, launches, tables_of
from tests.profile_grid.made_up import Made
from tests.profile_grid.made_up_answers import own_tables

(FIGURE,) = FIGURES
BUSY = Made(kernels=(*launches(5000.0),))


def tables(*runs: tuple) -> dict:
    merged = tables_of(*runs)
    return merged | dict(own_tables("m_energy", merged))


def test_the_parts_of_a_bar_follow_on_each_other_and_add_up_to_the_energy_of_a_token():
    made = tables(counted(BUSY))
    rows = [row for rows in FIGURE.draw(made).chart["datasets"].values() for row in rows][:3]
    token_mj = 1e3 * made["energy_use"]["joules_per_token"].iloc[0]
    assert {row["part"]: row["mj"] / token_mj for row in rows} == {
        "idle power while waiting": pytest.approx(0.75 * 0.25),
        "idle power while working": pytest.approx(0.25 * 0.25),
        "above idle power": pytest.approx(0.75),
    }
    assert [row["start"] / token_mj for row in rows] == pytest.approx([0, 0.75 * 0.25, 0.25])
    assert rows[-1]["text"] == "4.88 mJ, 500 W"
    assert on_paper(FIGURE, {name: made[name] for name in FIGURE.tables})


def test_a_run_without_energy_is_named_below_the_figure_and_a_grid_without_any_says_so():
    made = tables(counted(BUSY), (Made(model="large"), None))
    assert any("large · 512 · forward pass" in note for note in FIGURE.draw(made).absent)
    assert FIGURE.result(made) == "A token takes 4.88 mJ"
    assert FIGURE.draw(tables((Made(), None))).reason == "No run has a measurement of energy."
