"""The example on an H200, made from its tables again: a change of any number or sentence shows here as a diff."""

import pandas as pd
import pytest

from docs.render_example import H200, STUDIES, render_study
from profile_grid.documents.dictionary import dictionary
from profile_grid.study.catalogue import SUMMARY_NAMES


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_document_figure_and_table_of_answers_is_the_same(study, tmp_path):
    render_study(study, tmp_path)
    kept = {*study.glob("answers/*"), *study.glob("figures/*")}
    kept |= {path for path in (study / "tables").glob("*.parquet") if path.stem in SUMMARY_NAMES}
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path) for path in made} == {path.relative_to(study) for path in kept}
    for path in made:
        before = study / path.relative_to(tmp_path)
        if path.suffix == ".parquet":
            pd.testing.assert_frame_equal(pd.read_parquet(path), pd.read_parquet(before), rtol=1e-12, obj=path.stem)
        else:
            assert path.read_text(encoding="utf-8") == before.read_text(encoding="utf-8"), path.name


def test_the_data_dictionary_is_the_same():
    assert dictionary() == (H200 / "tables" / "README.md").read_text(encoding="utf-8")
