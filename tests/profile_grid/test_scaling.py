"""Power laws: exact data give the exact exponent, scatter gives its error, and what was not measured gives nothing."""

import math

import numpy as np
import pytest

from profile_grid.tables.scaling import fitted_power_law


def test_points_on_a_power_law_give_its_exponent_and_scale():
    law = fitted_power_law([1, 2, 4, 8], [3, 12, 48, 192])
    assert law.exponent == pytest.approx(2)
    assert law.scale == pytest.approx(3)
    assert law.exponent_std == pytest.approx(0, abs=1e-6)
    assert law.at([16]) == pytest.approx([768])


def test_the_standard_error_is_that_of_a_straight_line_through_the_logarithms():
    x, y = np.array([1.0, 2.0, 4.0, 8.0]), np.array([1.0, 2.2, 3.9, 8.1])
    law = fitted_power_law(x, y)
    slope, covariance = np.polyfit(np.log(x), np.log(y), 1, cov=True)
    assert law.exponent == pytest.approx(slope[0])
    assert law.exponent_std == pytest.approx(math.sqrt(covariance[0, 0]))


def test_two_points_give_an_exponent_without_a_spread_and_say_so():
    law = fitted_power_law([128, 512], [10, 40])
    assert (law.exponent, law.exponent_std, law.points) == (pytest.approx(1), None, 2)
    assert law.in_words() == "1.00 (2 points, spread unknown)"


@pytest.mark.parametrize(
    ("x", "y"), [([], []), ([1], [1]), ([2, 2, 2], [1, 2, 3]), ([1, 2], [1, math.nan]), ([1, 2], [1, 0])]
)
def test_fewer_than_two_measured_sizes_give_no_law(x, y):
    assert fitted_power_law(x, y) is None


def test_a_size_that_was_not_measured_is_left_out_of_the_fit():
    assert fitted_power_law([1, 2, 4, 8], [1, 2, math.nan, 8]).points == 3


def test_the_exponent_has_as_many_digits_as_its_error_allows():
    law = fitted_power_law([1, 2, 4, 8], [1.0, 2.2, 3.9, 8.1])
    assert law.in_words() == "0.99 ± 0.04 (4 points)"
