"""The comparisons that are kept, made from both sides again: a change of any number or sentence shows as a diff."""

import pytest

from docs.kept import KEPT, SIDES, comparisons, make_comparison, write_kept
from workflow.scripts.verify import file_difference


@pytest.mark.parametrize("kept", comparisons(), ids=lambda kept: kept.name)
def test_every_file_of_a_comparison_is_the_same_byte_for_byte(kept, tmp_path):
    for name, table in make_comparison(kept, tmp_path).items():
        write_kept(tmp_path / f"{name}.parquet", table)
    made = sorted(path.name for path in tmp_path.iterdir() if path.suffix in (".parquet", *KEPT))
    assert made == sorted(path.name for path in kept.iterdir() if path.suffix != ".html" and path.name not in SIDES)
    assert {name: file_difference(tmp_path / name, kept / name) for name in made} == dict.fromkeys(made)
