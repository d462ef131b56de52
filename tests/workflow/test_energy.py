"""(m): from windows of a counter to joules and watts, in numbers that a person can check."""

import pandas as pd
import pytest

from cs336_model.results import Energy, Window
from tests.workflow.small_tables import DEFAULTS
from workflow import text
from workflow.scripts import energy
from workflow.scripts.merge import list_windows
from workflow.tables import make_table


def keys(run: str, **changes) -> dict:
    nano = {"run": run, "model": "nano", "context_length": 8, "mode": "train_step", "batch_size": 2}
    return DEFAULTS | nano | changes


def make_windows(step_j: float, steps: int = 10) -> list[dict]:
    """Idle at 100 W, and three windows of 2 s with these steps and joules of a step."""
    windows = [Window(kind="idle", seconds=1.0, microjoules=100_000_000, steps=0)]
    windows += [Window(kind="steps", seconds=2.0, microjoules=int(1e6 * step_j * steps), steps=steps)] * 3
    return list_windows(Energy(status="complete", counter="NVML", windows=[*windows, windows[0]]))


@pytest.fixture
def tables() -> dict[str, pd.DataFrame]:
    """Two training steps that differ in precision, and one whose energy was not counted."""
    runs = {"fp32": keys("fp32"), "bf16": keys("bf16", precision="bf16"), "none": keys("none", precision="fp16")}
    windows = [runs["fp32"] | row for row in make_windows(60.0)] + [runs["bf16"] | row for row in make_windows(30.0)]
    facts = {"device": "cuda", "device_name": "NVIDIA H200", "forward_flops": 2 * 10**12, "energy_status": "complete"}
    rows = [row | facts for row in runs.values()]
    rows[2] |= {"energy_status": "unsupported", "reason": "no counter"}
    return {"runs": make_table("runs", rows), "energy_windows": make_table("energy_windows", windows)}


def summarize(tables: dict[str, pd.DataFrame]) -> pd.DataFrame:
    return energy.summarize_energy(tables["energy_windows"], tables["runs"])


def test_energy_and_power_are_means_over_windows(tables):
    table = summarize(tables)
    row = table.set_index("run").loc["fp32"]
    assert (row["step_ms"], row["joules_per_step"]) == (200.0, 60.0)
    assert (row["joules_per_token"], row["power_w"], row["idle_power_w"]) == (60 / 16, 300.0, 100.0)
    assert row["joules_per_step_std"] == 0
    assert row["tflops_per_watt"] == pytest.approx(3 * 2 / 60)  # a backward pass is twice a forward pass
    assert pd.isna(row["energy_ratio"])


def test_a_precision_is_compared_with_fp32(tables):
    row = summarize(tables).set_index("run").loc["bf16"]
    assert (row["base_run"], row["energy_ratio"]) == ("fp32", 0.5)


def test_the_document_leads_with_the_pair_of_precisions(tables):
    tables["energy"] = summarize(tables)
    document = text.environment(tables).get_template("m_energy.md.j2").render()
    assert "A training step in bf16 takes 30.0 J, 1875 mJ per token: 50.0 % of the 60.0 J in fp32" in document
    assert "takes 200 instead of 200 ms, and the GPU draws 150 instead of 300 W; it draws 100 W when idle" in document
