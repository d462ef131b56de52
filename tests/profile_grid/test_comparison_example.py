"""The comparisons that are kept, made anew from their two sides: a change of any figure or sentence shows as a diff."""

import pytest

from docs.comparisons import SIDES, comparisons, remake_comparison
from workflow.file_difference import file_difference


@pytest.mark.parametrize("kept", comparisons(), ids=lambda kept: kept.name)
def test_every_file_of_a_comparison_is_the_same_byte_for_byte(kept, tmp_path):
    remake_comparison(kept, tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(path.name for path in kept.iterdir() if path.name not in SIDES)
    assert {name: file_difference(tmp_path / name, kept / name) for name in made} == dict.fromkeys(made)
