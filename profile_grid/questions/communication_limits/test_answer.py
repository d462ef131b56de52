"""Limits of communication, from runs with planted rates, and from the example."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from cs336_model.arithmetic.rings import buckets_of
from profile_grid.documents.documents import document_names, documents
from profile_grid.documents.summaries import Summaries
from profile_grid.questions.communication_limits.table import bucket_costs
from profile_grid.study.catalogue import QUESTIONS
from profile_grid.tables.ideal import shape_of_run
from profile_grid.tables.per_pass import Merged
from tests.profile_grid.made_up import GEMM, MUL, Kernel, Made, merged
from tests.profile_grid.test_answers import PROVENANCE

NAME = "communication_limits"
TABLES = next(question.tables for question in QUESTIONS if question.name == NAME)
EXAMPLE = Path(__file__).parents[3] / "docs/example-h200/parallel/tables"
MS = 1_000_000
# per step and layer of 12: 3 ms of matrix multiplies in the forward pass, 5 in the backward pass
KERNELS = (
    Kernel("forward", "block > feed-forward", GEMM, "gemm", 36, 36_000.0),
    Kernel("forward", "block > feed-forward > activation", MUL, "elementwise", 12, 9_000.0),
    Kernel("backward", "block > feed-forward", GEMM, "gemm", 72, 60_000.0),
)
NAIVE = Made(
    mode="train_step", batch_size=8, gpus=2, parallel="naive", unprofiled_ms=80.0, kernels=KERNELS,
    others={"all_reduce_status": "complete", "forward_flops": None},  # with_flops sets it
)  # fmt: skip
TOKENS, D_MODEL, D_FF = 8 * 512, 768, 4 * 768


def with_flops(tables: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables with the FLOPs of this project's model, so that its shape is known."""
    from cs336_model.arithmetic.flops import ModelShape, forward_flops

    shape = ModelShape(4, 512, 10000, D_MODEL, 12, 12, D_FF)  # 4: the batch of 8 on two GPUs
    tables["runs"]["forward_flops"] = forward_flops(shape)["forward"]
    return tables


def all_reduces(run: Made, gb_per_s: float, latency_ms: float = 0.0) -> pd.DataFrame:
    """All-reduce alone of 1 and 1000 MB with this bus bandwidth on two GPUs."""
    times = {size: latency_ms + size / gb_per_s for size in (1, 1000)}
    rows = [run.leading | {"bytes": size * MS, "n": 20, "mean_ms": ms} for size, ms in times.items()]
    return pd.DataFrame(rows).assign(std_ms=0.1, min_ms=1.0, max_ms=1.0)


def single_reductions(run: Made, transfer_ms: float) -> pd.DataFrame:
    """Three all-reduces of a matrix of the layer, and one of another size, in one step of two ranks."""
    rows = []
    for rank in (0, 1):
        for number, size in enumerate([4 * D_MODEL * D_FF] * 3 + [4 * D_MODEL * D_MODEL]):  # 4 bytes: fp32
            row = {"rank": rank, "device": rank, "step": 0, "number": number, "operation": "all-reduce", "bytes": size}
            row |= {"bucket": None, "transfer_ns": transfer_ms * MS if number < 3 else 99 * MS}
            rows.append(run.leading | row)
    return pd.DataFrame(rows)


@pytest.fixture
def tables() -> dict[str, pd.DataFrame]:
    made = with_flops(merged([NAIVE]))
    made["all_reduce"] = all_reduces(NAIVE, gb_per_s=100.0)
    made["collectives"] = single_reductions(NAIVE, transfer_ms=0.5).reindex(columns=made["collectives"].columns)
    return made


def summaries(tables) -> Summaries:
    return Summaries(tables, TABLES)


def rows_by(table: pd.DataFrame) -> dict[tuple, dict]:
    return {(row["layout"], row["pass"]): row for row in table.to_dict("records")}


def test_a_layer_has_its_measured_rates_its_times_by_them_and_the_measured_times(tables):
    rows = rows_by(summaries(tables)["layer_limits"])
    assert list(rows) == [
        ("data parallel", "backward"), ("fully sharded", "forward"), ("fully sharded", "backward"),
        ("tensor parallel", "forward"), ("tensor parallel", "backward"),
    ]  # fmt: skip
    row = rows["data parallel", "backward"]
    flops_forward = 6 * TOKENS / 2 * D_MODEL * D_FF
    assert row["flop_per_s"] == pytest.approx(flops_forward / 3e-3) and row["rate_from"] == "layer"
    assert row["bus_gb_per_s"] == pytest.approx(100.0)
    assert row["compute_ms"] == pytest.approx(6.0) and row["measured_compute_ms"] == pytest.approx(5.0)
    assert row["communication_ms"] == pytest.approx(3 * 4 * D_MODEL * D_FF / 100e9 * 1e3)
    assert row["measured_transfer_ms"] == pytest.approx(1.5)
    assert row["ratio"] == pytest.approx(row["communication_ms"] / 6.0)
    assert row["fewest_tokens"] == pytest.approx(TOKENS * row["ratio"], abs=1)  # computation grows with the tokens
    assert pd.isna(rows["fully sharded", "backward"]["measured_transfer_ms"])
    assert rows["fully sharded", "backward"]["ratio"] == pytest.approx(row["ratio"])


def test_the_roof_of_the_precision_counts_before_the_rate_of_the_layer(tables):
    roofs = [
        {"roof": "fp32", "unit": "FLOP/s", "data_sheet_per_s": 1.0, "reached_per_s": 5e13},
        {"roof": "bf16", "unit": "FLOP/s", "data_sheet_per_s": 1.0, "reached_per_s": 7e14},
    ]
    tables["roofs"] = pd.DataFrame([NAIVE.leading | roof for roof in roofs])
    rows = summaries(tables)["layer_limits"]
    assert set(rows["flop_per_s"]) == {5e13} and set(rows["rate_from"]) == {"roof"}


def test_without_all_reduce_alone_on_as_many_gpus_there_is_no_row_and_the_answer_says_so(tables):
    tables["all_reduce"] = all_reduces(replace(NAIVE, gpus=4), gb_per_s=100.0)
    assert summaries(tables)["layer_limits"].empty
    assert "Not answered: all-reduce alone" in documents(summaries(tables), tables["runs"], PROVENANCE, [NAME])[NAME]


def test_the_question_needs_a_run_with_all_reduce_alone(tables):
    assert NAME in document_names(tables["runs"])
    assert NAME not in document_names(merged([replace(NAIVE, others={})])["runs"])


@pytest.fixture(scope="module")
def example() -> Merged:
    tables = {path.stem: pd.read_parquet(path) for path in EXAMPLE.glob("*.parquet")}
    return Merged(tables | {"roofs": pd.DataFrame(columns=["run", "roof", "reached_per_s"])})


def test_the_rule_of_buckets_gives_every_bucket_that_was_measured(example):
    measured = example["communication_collectives"]
    runs = example["runs"].set_index("run", drop=False)
    compared = 0
    for run, rows in measured[measured["bucket"].notna()].groupby("run"):
        sizes = rows.sort_values("bucket")["bytes"].tolist()
        megabytes = int(runs["parallel"][run].removeprefix("ddp-").removesuffix("mb"))
        predicted = buckets_of(shape_of_run(runs.loc[run].to_dict()), megabytes, 4)
        assert [bucket.size_bytes for bucket in predicted] == sizes
        compared += len(sizes)
    assert compared > 4000


def test_no_prediction_has_seen_its_own_size_of_buckets(example):
    table = bucket_costs(example)
    assert len(table) == 32 and table["error_ms"].notna().all()
    times = example.tables["rank_times"].copy()
    slowed = times["run"].isin(table.loc[table["bucket_mb"] == 10, "run"]) & (times["phase"] == "step")
    times.loc[slowed, "mean_ms"] += 1000.0
    changed = bucket_costs(Merged(example.tables | {"rank_times": times}))
    of_ten = table["bucket_mb"] == 10
    assert (changed.loc[of_ten, "predicted_ms"] == table.loc[of_ten, "predicted_ms"]).all()
    assert (changed.loc[~of_ten, "predicted_ms"] > table.loc[~of_ten, "predicted_ms"] + 10).all()
    assert (changed.loc[of_ten, "measured_ms"] > 1000).all()
