import math

import pandas as pd
import pytest

from profile_grid.quantities import (
    count,
    counted,
    interval,
    memory,
    percent,
    points,
    rate,
    ratio,
    significant,
    with_spread,
)


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        (12.345, 0.42, "12.3 ± 0.4 ms"),
        (12.345, 0.142, "12.35 ± 0.14 ms"),
        (12.345, 0.0999, "12.35 ± 0.10 ms"),
        (1234.6, 31.0, "1235 ± 31 ms"),
        (0.00512, 0.00021, "0.0051 ± 0.0002 ms"),
        (12.345, None, "12.3 ms"),
        (12.345, math.nan, "12.3 ms"),
        (12.345, 0.0, "12.3 ms"),
        (math.nan, 0.3, "–"),
        (pd.NA, pd.NA, "–"),
    ],
)
def test_a_mean_has_as_many_digits_as_its_spread_allows(mean, std, text):
    assert with_spread(mean, std, "ms") == text


@pytest.mark.parametrize(
    ("value", "text"), [(1234.0, "1234"), (0.012345, "0.0123"), (9.999, "10.0"), (0, "0"), (-2.5, "−2.50"), (None, "–")]
)
def test_a_number_without_spread_has_three_significant_digits_and_no_exponent(value, text):
    assert significant(value) == text


def test_a_share_that_is_there_never_reads_zero():
    assert [percent(share) for share in (0.3821, 0.0, 0.0002, 0.004, 1.0, None)] == [
        "38.2 %",
        "0.0 %",
        "< 0.1 %",
        "0.4 %",
        "100.0 %",
        "–",
    ]


def test_a_difference_of_shares_has_its_sign():
    assert [points(value) for value in (0.123, -0.123, 0.0001, -0.0001)] == ["+12.3", "−12.3", "±0.0", "±0.0"]


def test_counts_sizes_rates_and_ratios_carry_their_units():
    assert (count(1440), count(60.5)) == ("1,440", "60.5")
    assert (memory(18 * 2**30), memory(82 * 2**20)) == ("18.0 GiB", "82 MiB")
    assert (rate(2.41e13), rate(6.08e8), rate(12.0)) == ("24.1 TFLOP/s", "608 MFLOP/s", "12.0 FLOP/s")
    assert ratio(1.0423, 0.012) == "× 1.042 ± 0.012"


def test_an_interval_of_numbers_that_read_the_same_is_one_number():
    assert interval([0.5621, 0.5624], significant) == "0.562"
    assert interval([1.0, math.nan, 3.0], significant) == "1.00 to 3.00"
    assert interval([math.nan], significant) == "–"


def test_one_thing_is_counted_as_one():
    assert [counted(number, "run") for number in (0, 1, 2, 1.5)] == ["0 runs", "1 run", "2 runs", "1.5 runs"]
    assert counted(pd.Series([1, 1]), "invocation") == "1 invocation"
    assert counted([1, 9], "process", "processes") == "1 to 9 processes"
