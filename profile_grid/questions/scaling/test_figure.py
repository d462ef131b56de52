"""The fitted lines of the figure of scaling, from points that lie on a power law."""

import pytest

from profile_grid.questions.scaling.figure import laws, step_times
from profile_grid.study.dimensions import KEYS
from tests.profile_grid.made_up_grid import TWO_MODELS, made_up_tables


def test_the_fitted_exponent_is_that_of_a_power_law_between_points_that_differ_in_one_dimension():
    tables = made_up_tables(**TWO_MODELS, precisions=("fp32", "bf16"))
    times = step_times(tables["runs"], tables["timings"])
    scale = times["precision"].map({"fp32": 3.0, "bf16": 1.0})
    times = times.assign(mean_ms=scale * times["context_length"] ** 1.5 * times["parameters"] ** 0.8)
    by_context = laws(times, "context_length", "context_length")
    assert len(by_context) == 2 * 3 * 2
    for points, law in by_context:
        assert [points[key].nunique() for key in KEYS if key != "context_length"] == [1] * (len(KEYS) - 1)
        assert law.exponent == pytest.approx(1.5)
    assert [law.exponent for _, law in laws(times, "parameters", "model")] == pytest.approx([0.8] * 12)
