"""All runs brought together, from small results as measured programs leave them."""

import json

import numpy as np
import pandas as pd
import pytest

from cs336_model.results import BadResult
from kernel_tables.errors import NotConserved
from tests.workflow import small_results
from tests.workflow.small_results import OUT_OF_MEMORY, make_result
from workflow.scripts import merge
from workflow.tables import make_table, read_table, write_table

RUN, OTHER = "small_ctx8_train_step", "small_ctx8_forward"
NAMES = ("runs", "timings", "steps", "warmup_steps", "kernels", "phases", "findings", "energy_windows")
KERNELS = [
    (0, "forward", "", "gemm", "gemm", 2, 60, 30.0, 20, 40),
    (-1, "(outside)", "", "fill", "memset", 1, 9, 9.0, 9, 9),
]
PHASES = [(0, "step", 3000, 100, 80, 60, 2, 0, 0), (0, "forward", 1000, 90, 60, 60, 2, 0, 0)]


class Merged:
    """Results in a folder that is merged on demand."""

    def __init__(self, folder):
        self.folder, self.results, self.tables, self.wanted = folder, [], [], {}

    def add(self, *results):
        for result in results:
            path = small_results.write(self.folder, result)
            self.results.append(path)
            self.wanted[path] = result.key
            if result.key["spec"]["stage"] == "capture":
                self.add_tables(result)

    def add_tables(self, capture):
        folder = self.folder / "results/runs" / capture.key["spec"]["run"]
        is_complete = capture.status == "complete"
        for name, rows in {"kernels": KERNELS, "phases": PHASES, "findings": ()}.items():
            path = folder / f"{name}.parquet"
            write_table(make_table(name, rows if is_complete else (), keys=False), path, keys=False)
            self.tables.append(str(path))
        (folder / "status.json").write_text(json.dumps({"status": capture.status, "warnings": ["steps vary"]}))
        self.tables.append(str(folder / "status.json"))

    def merge(self, names=NAMES):
        plan, folder = self.folder / "plan.json", self.folder / "results/tables"
        plan.write_text(json.dumps(self.wanted))
        outputs = [f"results/tables/{name}.parquet" for name in names] + ["results/tables/README.md"]
        merge.main(self.results, self.tables, str(plan), outputs)
        return {name: read_table(folder / f"{name}.parquet") for name in names}


@pytest.fixture
def grid(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Merged(tmp_path)


def test_a_run_has_a_row_with_its_sizes_its_machine_and_the_status_of_every_stage(grid):
    grid.add(make_result(RUN, "timing"), make_result(RUN, "capture"), make_result(OTHER, "timing", {"mode": "forward"}))
    row, other = (row for _, row in grid.merge()["runs"].iterrows())
    assert other["capture_status"] == "not_asked"
    assert row[["model", "context_length", "checkpoint", "gpus", "num_layers", "d_model", "vocab_size"]].tolist() == [
        "small", 8, "0", 1, 1, 16, 50
    ]  # fmt: skip
    assert row[["timing_status", "capture_status", "memory_status"]].tolist() == ["complete", "complete", "not_asked"]
    assert row[["backend", "nsys", "torch", "device_name"]].tolist() == ["nsys", "2025.3.1", "2.11.0", "NVIDIA H200"]
    assert row[["steps_timed", "steps_captured", "loss", "note"]].tolist() == [3, 3, 2.5, "steps vary"]
    assert pd.isna(row["reason"]) and row["started_utc"] == "2026-01-02T03:04:05Z"


def test_a_run_out_of_memory_is_a_row_with_its_reason_and_without_times(grid):
    grid.add(
        make_result(RUN, "timing", **OUT_OF_MEMORY), make_result(RUN, "capture", **OUT_OF_MEMORY),
        make_result(OTHER, "timing", {"mode": "forward"}),
    )  # fmt: skip
    merged = grid.merge()
    row = merged["runs"].set_index("run").loc[RUN]
    assert row[["timing_status", "reason", "oom_during", "oom_requested_bytes", "oom_total_bytes"]].tolist() == [
        "out_of_memory", "memory ran out", "backward", 20, 30
    ]  # fmt: skip
    assert row["steps_captured"] == 0 and merged["runs"]["run"].tolist() == [RUN, OTHER]
    timings = merged["timings"].set_index("run").loc[RUN]
    assert timings[["phase", "n", "processes", "status"]].tolist() == ["step", 0, 0, "out_of_memory"]
    assert np.isnan(timings["mean_ms"]) and RUN not in set(merged["kernels"]["run"])


def test_times_of_every_phase_stand_in_milliseconds_with_the_deviation_of_a_sample(grid):
    grid.add(make_result(RUN, "timing"))
    merged = grid.merge()
    timings = merged["timings"].set_index("phase")
    assert timings.loc["step", ["n", "mean_ms", "std_ms", "min_ms", "max_ms", "processes"]].tolist() == pytest.approx(
        [3, 12.0, 2.0, 10.0, 14.0, 1]
    )
    assert timings.index.tolist() == ["step", "forward"] and np.isnan(timings.loc["step", "process_spread"])
    steps = merged["steps"]
    assert steps[steps["phase"] == "step"]["ms"].tolist() == pytest.approx([10, 12, 14])
    assert merged["warmup_steps"][["phase", "ms"]].to_numpy().tolist() == [["step", 50.0], ["forward", 20.0]]


def test_several_processes_give_the_geometric_mean_of_their_means_and_the_spread_between_them(grid):
    other = {"step_seconds": [0.040, 0.048, 0.056], "phase_seconds": {}}
    grid.add(make_result(RUN, "timing"), make_result(RUN, "timing", {"process": 2}, **other))
    merged = grid.merge()
    step = merged["timings"].set_index("phase").loc["step"]
    assert step["mean_ms"] == pytest.approx(24.0)  # of 12 and 48
    assert step["std_ms"] == pytest.approx(((2**2 + 8**2) / 2) ** 0.5)
    assert step["process_spread"] == pytest.approx(np.log(4) / 2**0.5)
    assert step[["n", "processes", "min_ms", "max_ms"]].tolist() == pytest.approx([6, 2, 10, 56])
    steps = merged["steps"].query("phase == 'step'")
    assert steps.groupby("process")["ms"].max().to_dict() == pytest.approx({1: 14, 2: 56})


def test_tables_of_an_earlier_grid_go(grid):
    grid.add(make_result(RUN, "timing"))
    left = grid.folder / "results/tables/attention_sweep.csv"
    left.parent.mkdir()
    left.write_text("of an earlier grid")
    grid.merge()
    assert not left.exists()


def test_tables_of_different_captures_are_refused(grid):
    grid.add(make_result(RUN, "capture"))
    rows = [(0, "forward", "", "gemm", "gemm", 2, 61, 30.0, 20, 40)]
    write_table(make_table("kernels", rows, keys=False), f"results/runs/{RUN}/kernels.parquet", keys=False)
    with pytest.raises(NotConserved, match=f"{RUN}, step 0, forward: its kernels take 61 ns, the phase 60 ns"):
        grid.merge()


def test_a_result_of_something_else_is_refused_with_the_command_that_measures_again(grid):
    grid.add(make_result(RUN, "timing"), make_result(RUN, "capture"))
    grid.wanted[f"results/runs/{RUN}/timing.json"]["spec"]["measured_steps"] = 7
    said = rf"(?s)1 of 2 results.*measured_steps was 3, is 7.*--forcerun .*{RUN}/timing.json"
    with pytest.raises(BadResult, match=said):
        grid.merge()


def test_losses_that_differ_between_stages_are_noted_except_of_the_smaller_model_of_counters(grid):
    losses = {"losses": [4.0, 3.6]}
    grid.add(make_result(RUN, "timing"), make_result(RUN, "counters", **losses))
    assert pd.isna(grid.merge()["runs"]["note"][0])
    grid.add(make_result(RUN, "memory", **losses))
    assert grid.merge()["runs"]["note"][0] == "the losses of timing and memory differ by up to 2.9%"


def test_attention_alone_is_a_row_without_what_it_does_not_have(grid):
    spec = {"model": "attention", "context_length": None, "mode": None, "head_dim": 16, "context_lengths": [8]}
    grid.add(make_result("attention_d16", "attention", spec | {"sizes": {}}))
    row = grid.merge()["runs"].iloc[0]
    assert row[["model", "head_dim", "attention_status", "timing_status"]].tolist() == [
        "attention", 16, "complete", "not_asked"
    ]  # fmt: skip
    assert row[["context_length", "mode", "checkpoint", "parallel", "optimizer"]].isna().all()
