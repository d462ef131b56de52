"""Runs that differ in a dimension which a table does not show are kept apart, or the table fails by name."""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from profile_grid.study.catalogue import QUESTIONS
from profile_grid.study.dimensions import KEYS, LEADING
from profile_grid.tables.pivoting import AmbiguousCell, __file__, pivoted, shown_dimensions, split
from profile_grid.tables.wording import config_in_words
from tests.default_values import DEFAULT_VALUES
from tests.profile_grid.made_up import GEMM, forward_kernels, grid, merged
from tests.profile_grid.made_up_answers import summaries
from tests.profile_grid.test_answers import rendered


def rows(*cells):
    """Rows of a table of shares: (model, context, mode, precision, batch size, ...), and a value for each."""
    return pd.DataFrame([("run", *cell, value) for value, cell in enumerate(cells)], columns=[*LEADING, "share"])


OTHERS = tuple(DEFAULT_VALUES[key] for key in KEYS[5:])
SMALL, SMALL_IN_BF16 = ("small", 512, "forward", "fp32", 4, *OTHERS), ("small", 512, "forward", "bf16", 4, *OTHERS)
LARGE = ("large", 512, "forward", "fp32", 4, *OTHERS)


def test_a_wide_table_has_a_row_and_a_column_for_each_value():
    wide = pivoted(rows(SMALL, LARGE), ["context_length"], "model", ["share"])["share"]
    assert wide.loc[512].to_dict() == {"small": 0, "large": 1}


def test_a_wide_table_of_no_rows_has_the_values_that_were_asked_for():
    assert pivoted(rows(SMALL)[:0], ["context_length"], "model", ["share"])["share"].empty


def test_two_rows_in_one_place_are_an_error_that_names_the_dimension_and_nothing_is_averaged():
    with pytest.raises(AmbiguousCell, match=r"2 rows share a place \(512, small\) .*; precision differs between them"):
        pivoted(rows(SMALL, SMALL_IN_BF16), ["context_length"], "model", ["share"])


def test_rows_are_split_by_what_varies_and_is_not_shown():
    parts = list(split(rows(SMALL, SMALL_IN_BF16, LARGE), ("model", "context_length", "mode")))
    assert [(title, part["share"].tolist()) for title, part in parts] == [
        ("precision fp32", [0, 2]), ("precision bf16", [1]),
    ]  # fmt: skip


def test_rows_of_one_combination_are_one_part_without_a_title():
    ((title, part),) = split(rows(SMALL, LARGE), ("model", "context_length", "mode"))
    assert (title, len(part)) == ("", 2)


def test_a_dimension_has_a_column_where_a_row_is_not_at_its_default():
    assert shown_dimensions(rows(SMALL, LARGE), ("model",)) == ["model", "context_length", "mode"]
    assert shown_dimensions(rows(SMALL_IN_BF16), ("model",)) == ["model", "context_length", "mode", "precision"]


@pytest.fixture(scope="module")
def told():
    """The documents of a grid in fp32 and, in half the time, in bf16."""
    fp32 = grid()
    runs = [*fp32, *(replace(run, precision="bf16", unprofiled_ms=run.unprofiled_ms / 2) for run in fp32)]
    return rendered(runs)


@pytest.mark.parametrize("name", [one.name for one in QUESTIONS if one.letter in set("abcde")])
def test_a_document_has_as_many_lines_for_bf16_as_for_fp32(told, name):
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told[name].splitlines() if line[:1] == "|"]
    fp32, bf16 = ([row for row in cells if row[2] == precision] for precision in ("fp32", "bf16"))
    assert len(fp32) == len(bf16) > 0
    assert [row[:2] for row in fp32] == [row[:2] for row in bf16]


def test_a_table_of_models_by_contexts_comes_once_for_each_precision_with_its_own_figures(told):
    first, second = (
        told["a_forward_time"].partition(f"by Python's timer, without a profiler, ms, precision {precision}:")[2]
        for precision in ("fp32", "bf16")
    )
    in_fp32, in_bf16 = (
        float(re.search(r"\| small *\| *([\d.]+) ±", text)[1]) for text in (first, second)
    )  # fmt: skip
    assert in_fp32 == pytest.approx(2 * in_bf16, rel=0.05)


def test_a_sentence_names_what_is_not_at_its_default():
    fp32 = grid(models=("small",), contexts=(128,))
    runs = merged([*fp32, *(replace(run, precision="bf16") for run in fp32)])["runs"]
    assert dict.fromkeys(map(config_in_words, runs.to_dict("records"))) == dict.fromkeys(
        ["small at context 128", "small at context 128 in bf16"]
    )


def test_the_inference_run_that_training_is_compared_with_is_of_the_same_precision():
    fp32 = grid(models=("small",), contexts=(512,))
    other = tuple(replace(kernel, name="another") if kernel.name == GEMM else kernel for kernel in forward_kernels())
    bf16 = [replace(run, precision="bf16") for run in fp32]
    bf16[0] = replace(bf16[0], kernels=other)  # inference in bf16 leads with another kernel, training with GEMM
    top = summaries(*fp32, *bf16)["top_kernels"].dropna(subset="same_as_forward")
    same = top[top["mode"] != "forward"].set_index("run")["same_as_forward"]
    assert same.to_dict() == {
        "small_ctx512_forward_backward": True, "small_ctx512_train_step": True,
        "small_ctx512_forward_backward_bf16": False, "small_ctx512_train_step_bf16": False,
    }  # fmt: skip


def test_values_stay_in_their_rows_whatever_the_order_and_with_places_absent():
    rows = pd.DataFrame(
        {
            "model": ["m"] * 5,
            "context_length": [2048, 8192, 8192, 2048, 2048],
            "precision": ["bf16", "bf16", "bf16", "fp32", "fp32"],
            "attention": ["eager", "flash", "eager", "eager", "math"],
            "mean_ms": [1.0, 2.0, 3.0, 4.0, 5.0],
            "status": ["a", "b", "c", "d", "e"],
        }
    )
    wide = pivoted(rows, ["model", "context_length", "precision"], "attention", ["mean_ms", "status"])
    assert wide.index.tolist() == [("m", 2048, "bf16"), ("m", 8192, "bf16"), ("m", 2048, "fp32")]
    for row in rows.to_dict("records"):
        own = wide.loc[("m", row["context_length"], row["precision"])]
        assert (own[("mean_ms", row["attention"])], own[("status", row["attention"])]) == (
            row["mean_ms"],
            row["status"],
        )
    assert wide[("mean_ms", "math")].isna().tolist() == [True, True, False]


def test_no_table_is_unstacked_unsorted_which_pandas_3_0_gets_wrong():
    sources = (path.read_text() for path in (Path(__file__).parents[1]).rglob("*.py"))
    assert not [line for source in sources for line in source.splitlines() if re.search(r"unstack\(.*sort=False", line)]
