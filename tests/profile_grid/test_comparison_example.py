"""The comparisons that are kept, made from both sides again: a change of any number or sentence shows as a diff."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from docs.render_example import COMPARISONS, H200, render_comparison

SIDES = ("before", "after")
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e-?\d+)?")


@pytest.mark.parametrize("kept", COMPARISONS, ids=lambda kept: kept.name)
def test_every_file_of_a_comparison_is_the_same_but_for_the_last_digits_that_a_processor_decides(kept, tmp_path):
    render_comparison(kept, tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == sorted(path.name for path in kept.iterdir() if path.name not in SIDES)
    for name in made:
        if name.endswith(".parquet"):
            before, after = (pd.read_parquet(folder / name) for folder in (kept, tmp_path))
            pd.testing.assert_frame_equal(after, before, rtol=1e-12)
        else:
            before, after = ((folder / name).read_text(encoding="utf-8") for folder in (kept, tmp_path))
            assert NUMBER.sub("", after) == NUMBER.sub("", before), name
            was, now = ([float(number) for number in NUMBER.findall(text)] for text in (before, after))
            assert now == pytest.approx(was, rel=1e-12), name


def compared(name: str) -> pd.DataFrame:
    """Per run of a comparison the ratio after ÷ before, its interval, and the p-value by Welch's test of processes."""
    sides = []
    for side in SIDES:
        folder = H200 / "comparison" / name / side
        steps = pd.read_parquet(folder / "tables" / "steps.parquet").assign(process=1)
        steps = pd.concat([steps, pd.read_parquet(folder / "processes" / "steps.parquet")])
        medians = steps[steps["phase"] == "step"].groupby(["run", "process"])["ms"].median()
        sides.append(np.log(medians))
    rows = {}
    for run in sides[0].index.unique("run"):
        test = stats.ttest_ind(sides[1][run], sides[0][run], equal_var=False)
        rows[run] = (
            np.exp(sides[1][run].mean() - sides[0][run].mean()),
            *np.exp(test.confidence_interval(0.95)),
            test.pvalue,
        )
    found = pd.DataFrame.from_dict(rows, orient="index", columns=["ratio", "low", "high", "p"])
    return found.assign(p_adjusted=stats.false_discovery_control(found["p"]))


@pytest.mark.parametrize("name", ["same", "slower"])
def test_processes_of_a_comparison_differ_by_this_much(name):
    found = compared(name)
    cells = pd.read_parquet(H200 / "comparison" / name / "cells.parquet").set_index("run").reindex(found.index)
    for column, kept in (
        ("ratio", "ratio"),
        ("low", "ratio_low"),
        ("high", "ratio_high"),
        ("p_adjusted", "p_adjusted"),
    ):
        assert found[column].to_numpy() == pytest.approx(cells[kept].to_numpy(dtype="float64"), rel=1e-6), column
    text = (H200 / "comparison" / name / "comparison.md").read_text(encoding="utf-8")
    changed = found[found["p_adjusted"] < 0.05]
    if changed.empty:
        widths = np.sqrt(found["high"] / found["low"]) - 1
        within = f"± {100 * widths.median():.1f} % (median; at most ± {100 * widths.max():.1f} %)"
        assert f"No change was detected in {len(found)} runs; the interval of a ratio is {within}." in text
    else:
        (row,) = changed.itertuples()
        amount, low, high = (f"{100 * (value - 1):.1f} %" for value in (row.ratio, row.low, row.high))
        assert f"is {amount} slower ({low} to {high})." in text
