"""(h): runs that differ only in attention, in times that a person can check."""

import pandas as pd
import pytest

from tests.workflow.small_tables import DEFAULTS
from workflow import text
from workflow.scripts import attention_backends
from workflow.tables import make_table, write_table

RUNS = {  # by name: context length, attention, GPU ms, ms of attention, wall ms; None: out of memory
    "a": (512, "eager", 10.0, 4.0, 20.0), "a_math": (512, "math", 12.0, 6.0, 22.0),
    "a_flash": (512, "flash", 8.0, 2.0, 20.0),
    "b": (1024, "eager", 40.0, 30.0, 41.0), "b_flash": (1024, "flash", 10.0, 1.0, 12.0),
    "c": (8192, "eager", None, None, None), "c_flash": (8192, "flash", 60.0, 9.0, 61.0),
    "alone": (64, "eager", 1.0, 0.5, 2.0),
}  # fmt: skip


@pytest.fixture
def tables() -> dict[str, pd.DataFrame]:
    rows: dict[str, list[dict]] = {"runs": [], "timings": [], "phases": [], "kernels": []}
    for run, (length, attention, gpu_ms, attention_ms, wall_ms) in RUNS.items():
        keys = DEFAULTS | {"run": run, "model": "nano", "mode": "train_step", "precision": "bf16"}
        keys |= {"context_length": length, "attention": attention}
        status = "complete" if gpu_ms else "out_of_memory"
        facts = {"device": "cuda", "device_name": "NVIDIA H200", "timing_status": status, "capture_status": status}
        rows["runs"].append(keys | facts | {"peak_allocated_bytes": 2**30 if gpu_ms else 2**40})
        if gpu_ms is None:
            continue
        rows["timings"].append(keys | {"phase": "step", "mean_ms": wall_ms, "processes": 1})
        for step in range(3):
            at = keys | {"step": step, "phase": "step", "gpu_busy_ns": int(1e6 * gpu_ms * (1 + step / 1000))}
            rows["phases"].append(at)
            kernel = keys | {"step": step, "phase": "forward", "kernel": "k", "class": "gemm", "launches": 1}
            inside = "block > attention > scaled dot product attention > computing softmax"
            rows["kernels"].append(kernel | {"range": inside, "total_ns": int(1e6 * attention_ms)})
            rows["kernels"].append(kernel | {"range": "head", "total_ns": 5})
    return {name: make_table(name, table) for name, table in rows.items()}


@pytest.fixture
def table(tables) -> pd.DataFrame:
    tables["attention_backends"] = attention_backends.compare_backends(tables)
    return tables["attention_backends"].set_index("run")


def test_a_run_is_compared_with_the_eager_one_that_differs_in_nothing_else(table, tables, tmp_path):
    write_table(tables["attention_backends"], tmp_path / "attention_backends.parquet")
    assert "alone" not in table.index and len(table) == 7
    assert table["gpu_ratio"].dropna().to_dict() == pytest.approx({"a_math": 1.2, "a_flash": 0.8, "b_flash": 0.25})
    assert table["gpu_verdict"].dropna().to_dict() == {"a_math": "slower", "a_flash": "faster", "b_flash": "faster"}
    ratios = {"a_math": 1.5, "a_flash": 0.5, "b_flash": 1 / 30}
    assert table["attention_ratio"].dropna().to_dict() == pytest.approx(ratios)
    assert table.loc["a_flash", "idle_share"] == pytest.approx(0.6, abs=0.01)
    assert set(table["wall_verdict"].dropna()) == {"cannot be told"}  # one process each


def test_the_lead_names_the_median_of_the_fastest(table, tables):
    assert table.index[table["is_typical"]].tolist() == ["b_flash"]  # of 0.25 and 0.8, the lower
    document = text.environment(tables).get_template("h_attention.md.j2").render()
    assert "With flash attention, a training step takes 10.0 ms of GPU time, 25.0 % of the 40.0 ms" in document
    assert "itself (without projections) takes 1.00 instead of 30.0 ms in the forward pass" in document
    assert "in bf16 `attentions: [flash]`. It takes 25.0 % to 80.0 %" in document
    assert "runs out with eager attention in nano at context 8192, training step (flash fit: 1.0 GiB)" in document
    assert "math attention is slower than eager attention in the only configuration" in document
    assert "12.0 instead of 41.0 ms there; whether that holds in other processes cannot be told" in document


def test_the_figure_shows_gpu_time_in_percent_and_without_pairs_a_reason(table, tables):
    drawn = attention_backends.draw(tables["attention_backends"], tables["runs"]).to_dict()
    percents = [row["percent"] for rows in drawn["datasets"].values() for row in rows if "run" in row]
    assert sorted(percents) == pytest.approx([25, 80, 120])
    none = tables["attention_backends"][:0]
    assert "No two captured runs" in str(attention_backends.draw(none, tables["runs"]).to_dict())
    tables["attention_backends"] = none
    assert "Not answered" in text.environment(tables).get_template("h_attention.md.j2").render()
