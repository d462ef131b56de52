"""The growth that the figure of scaling names, from points that lie on a power law."""

import json
import re

import pytest

from profile_grid.questions.scaling.figure import FIGURES, growth, step_times
from tests.profile_grid.made_up_grid import TWO_MODELS, made_up_tables


def test_the_growth_for_twice_the_size_is_that_of_a_power_law_between_points_that_differ_in_one_dimension():
    tables = made_up_tables(**TWO_MODELS, precisions=("fp32", "bf16"))
    times = step_times(tables["runs"], tables["timings"])
    scale = times["precision"].map({"fp32": 3.0, "bf16": 1.0})
    times = times.assign(mean_ms=scale * times["context_length"] ** 1.5 * times["parameters"] ** 0.8)
    # a line per model, mode and precision; per context length, mode and precision
    assert growth(times, "context_length") == pytest.approx([2**1.5] * 2 * 3 * 2)
    assert growth(times, "parameters") == pytest.approx([2**0.8] * 12)


def test_growth_is_that_between_the_two_largest_sizes():
    tables = made_up_tables(models=("small",), contexts=(128, 256, 512), modes=("forward",))
    times = step_times(tables["runs"], tables["timings"]).assign(mean_ms=[1.0, 1.0, 4.0])
    assert growth(times, "context_length") == pytest.approx([4.0])
    assert growth(times.head(1), "context_length") == []


@pytest.mark.parametrize(("models", "contexts", "titles"), [
    (("small", "medium"), (128,), {"parameters"}), (("small",), (128, 512), {"context length (tokens)"}),
])  # fmt: skip
def test_there_is_no_panel_of_a_size_that_is_the_same_in_all_runs(models, contexts, titles):
    tables = made_up_tables(models=models, contexts=contexts)
    drawn = json.dumps(FIGURES[0].draw(tables).chart["vconcat"])
    assert set(re.findall(r'"x": \{.*?"title": "([^"]+)"', drawn)) == titles
