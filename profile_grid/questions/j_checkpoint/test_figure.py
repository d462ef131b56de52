"""The figure of (j), drawn from a made-up grid with and without checkpoints."""

import json

from profile_grid.figures.paper import on_paper
from profile_grid.questions.j_checkpoint.figure import FIGURES
from tests.profile_grid.made_up_grid import OOM, made_up_tables

FIGURE, PEAK = FIGURES
WITHOUT = "small_ctx512_train_step"


def tables(**changes):
    grid = {
        "models": ("small",),
        "contexts": (128, 512),
        "modes": ("train_step",),
        "checkpoints": ("0", "1", "2"),
    }
    return made_up_tables(**(grid | changes))


def test_every_timed_run_is_a_point_at_its_peak():
    names = [
        f"small_ctx{context}_train_step{end}" for context in (128, 512) for end in ("", "_checkpoint1", "_checkpoint2")
    ]
    made = tables(changes={name: {"peak_allocated_bytes": 2**33} for name in names} | {WITHOUT: OOM})
    chart = FIGURE.draw(made).chart
    points = {row["run"] for rows in chart["datasets"].values() for row in rows if "gib" in row}
    assert points == set(names) - {WITHOUT}
    assert "peak memory (GiB)" in json.dumps(chart)
    assert on_paper(FIGURE, {name: made[name] for name in FIGURE.tables})


def test_the_result_says_how_much_longer_a_step_takes():
    assert FIGURE.result(tables()).startswith("With checkpoints of 1 block, a step takes 1.")
    reason = "No two training runs with times and memory differ only in checkpoints."
    assert FIGURE.draw(tables(checkpoints=("0",))).reason == reason


def test_every_run_that_fits_has_its_peak():
    lower = {"peak_allocated_bytes": 2**28}
    made = tables(changes={WITHOUT: OOM, f"{WITHOUT}_checkpoint2": lower}, contexts=(512,))
    drawing = PEAK.draw(made)
    points = [row for rows in drawing.chart["datasets"].values() for row in rows if "gib" in row]
    measured = {row["run"]: row["gib"] for row in points}
    assert measured[f"{WITHOUT}_checkpoint2"] == 0.25 and WITHOUT not in measured
    assert PEAK.result(made) == "The lowest peak of small at context 512: 256 MiB, with 2 blocks per checkpoint"
    assert on_paper(PEAK, {name: made[name] for name in PEAK.tables})
