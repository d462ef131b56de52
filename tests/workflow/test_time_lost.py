"""Time lost: what a finding saves at most in a step without a profiler, in numbers that a person can check."""

import json

import pandas as pd
import pytest

from workflow import text
from workflow.scripts import time_lost
from workflow.tables import make_table

KEYS = {"model": "nano", "context_length": 8, "mode": "train_step", "batch_size": 1, "gpus": 1}


def tables(findings: list[dict], step_ms: float | None = 10.0, **machine: str) -> dict:
    """The merged tables of a run whose captured GPU is busy for 8 of 20 ms."""
    run = KEYS | {"run": "nano"}
    facts = {"abstained": False, "sure": "likely", "message": "what was found", "advice": "do it", "evidence": "{}"}
    timings = [] if step_ms is None else [run | {"phase": "step", "mean_ms": step_ms}]
    return {
        "findings": make_table("findings", [run | facts | finding for finding in findings]),
        "runs": make_table("runs", [run | {"device": "cuda", "capture_status": "complete"} | machine]),
        "timings": make_table("timings", timings),
        "phases": make_table("phases", [run | {"step": 0, "phase": "step", "gpu_busy_ns": 8e6, "wall_ns": 20e6}]),
    }


def limit(*findings: dict, **options) -> pd.DataFrame:
    return time_lost.limit_gains(**tables(list(findings), **options)).set_index("code")


def a_finding(code: str, gain_ms: float, **evidence) -> dict:
    return {"code": code, "gain_ms": gain_ms, "gain_percent": 5 * gain_ms, "evidence": json.dumps(evidence)}


@pytest.mark.parametrize(
    ("finding", "gain_ms"),
    [
        (a_finding("launch_bound", 9.0), 2.0),  # the GPU idles for 10 - 8 ms
        (a_finding("launch_bound", 1.0), 1.0),
        (a_finding("unfused_optimizer", 9.0, running_ms=1.5), 3.5),  # and its own kernels
        (a_finding("small_kernels", 9.0, running_ms=3.0), 5.0),
        (a_finding("idle_copy", 9.0, copying_alone_ms=0.5), 2.5),
        (a_finding("unfused_attention", 6.0), 6.0),  # kernels alone
        (a_finding("unfused_attention", 12.0), 10.0),  # a profiler's step may take longer
        (a_finding("my_rule", 3.0), 3.0),
    ],
)
def test_a_finding_saves_at_most_the_idle_time_and_its_own_gpu_time(finding, gain_ms):
    row = limit(finding).iloc[0]
    assert row["gain_ms"] == pytest.approx(gain_ms) and row["gain_percent"] == pytest.approx(10 * gain_ms)


def test_without_a_timing_or_a_gpu_the_gain_is_the_same_share_as_of_the_captured_step():
    row = limit(a_finding("launch_bound", 9.0), step_ms=None).iloc[0]
    assert (row["gain_ms"], row["gain_percent"]) == (9.0, 45.0)
    row = limit(a_finding("unfused_elementwise", 9.0), device="cpu").iloc[0]  # 45 % of a captured step of 20 ms
    assert (row["gain_ms"], row["gain_percent"]) == (4.5, 45.0)


def test_tensor_cores_save_what_bf16_does_by_the_data_sheet():
    saved = 1 - 67 / 989.4
    row = limit(a_finding("no_tensor_cores", 5.0), device_name="NVIDIA H200").iloc[0]
    assert row["gain_ms"] == pytest.approx(5 * saved)
    assert limit(a_finding("no_tensor_cores", 5.0))["gain_ms"].iloc[0] == 5.0  # no known peaks


def test_the_largest_gain_comes_first_and_rules_that_lack_data_last():
    abstained = {"code": "wave_tail", "abstained": True, "gain_ms": None, "gain_percent": None}
    table = limit(abstained, a_finding("launch_bound", 9.0), a_finding("unfused_attention", 6.0))
    assert table.index.tolist() == ["unfused_attention", "launch_bound", "wave_tail"]
    assert pd.isna(table.loc["wave_tail", "gain_ms"])


def document(*findings: dict) -> str:
    made = tables(list(findings))
    made["time_lost"] = time_lost.limit_gains(**made)
    return text.environment(made).get_template("time_lost.md.j2").render()


def test_the_answer_names_what_costs_most_why_and_what_to_do():
    abstained = {"code": "idle_sync", "abstained": True, "message": "no `calls`", "gain_ms": None}
    said = document(a_finding("launch_bound", 9.0), a_finding("my_rule", 1.0), abstained)
    assert said.split("\n\n")[1] == (
        "`launch_bound` is the largest finding in the only run. Fixing it saves at most 2.00 of 10.0 ms of a"
        " step, 20.0 % (nano at context 8, training step)."
    )
    assert "- Because: under the profiler, where a step takes 20.0 ms, what was found" in said
    assert "- What to do: do it." in said
    assert "- `my_rule` is found in the only run: the bound is 10.0 % of a step." in said
    assert "- Not checked: `idle_sync` in the only run: no \\`calls\\`" in said
    assert "| nano    | 8         | launch_bound 20.0 %, my_rule 10.0 % |" in said


def test_a_grid_without_findings_says_so():
    assert "\n\nNot answered: no capture of a step was diagnosed (nano at context 8" in document()
    tiny = document(a_finding("my_rule", 0.01))
    assert "\n\nThe diagnosis finds nothing that would save 1 % of a step in the only run" in tiny
