"""The program from its arguments to its files."""

import json
import math
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from cs336_model.arguments import PROJECT_ARGUMENTS
from cs336_model.program import benchmark
from cs336_model.program.process import STAGES
from tests.cs336_model.specs import changed
from tests.default_values import DEFAULT_VALUES

KEYS = {
    "schema", "status", "spec", "profiler", "out_of_memory", "reason", "compilation", "accuracy",
    "rank_device", "step_no_sync_seconds",
    "step_seconds", "warmup_seconds", "warmup_phase_seconds", "phase_seconds", "phase_clock", "losses",
    "memory", "parameters", "flops", "machine", "cost_seconds",
    "ran_unix_s", "loaded", "loaded_distributions",
}  # fmt: skip


@pytest.mark.parametrize(
    ("mode", "phases", "losses"),
    [
        ("forward", {"forward": 2, "loss": 0, "backward": 0, "optimizer": 0}, 1),
        ("forward_backward", {"forward": 2, "loss": 2, "backward": 2, "optimizer": 0}, 3),
        ("train_step", {"forward": 2, "loss": 2, "backward": 2, "optimizer": 2}, 3),
    ],
)
def test_every_mode_keeps_every_time_and_loss(run_benchmark, spec_values, mode, phases, losses):
    result = run_benchmark(mode=mode)
    assert set(result) == KEYS
    assert result["status"] == "complete" and result["spec"] == changed(spec_values, mode=mode)
    assert len(result["step_seconds"]) == 2 and min(result["step_seconds"]) > 0
    assert {phase: len(seconds) for phase, seconds in result["phase_seconds"].items()} == phases
    assert len(result["warmup_seconds"]) == 1 and result["warmup_seconds"][0] > 0
    assert {phase: len(seconds) for phase, seconds in result["warmup_phase_seconds"].items()} == {
        phase: int(count > 0) for phase, count in phases.items()
    }
    assert len(result["losses"]) == losses
    assert result["losses"][0] == pytest.approx(math.log(50), abs=1.0)  # an untrained model knows nothing
    assert result["machine"]["device"] == "cpu" and result["machine"]["torch"] == torch.__version__


def test_losses_are_the_same_with_and_without_a_profiler(run_benchmark, tmp_path):
    alone = run_benchmark()
    captured = run_benchmark("--profiler", "torch", "--capture", str(tmp_path / "capture.sqlite"))
    assert captured["losses"] == alone["losses"]
    assert (alone["profiler"], captured["profiler"]) == ("none", "torch")


def test_the_capture_holds_the_measured_steps_and_no_warm_up(run_benchmark, tmp_path):
    path = tmp_path / "capture.sqlite"
    run_benchmark("--profiler", "torch", "--capture", str(path))
    connection = sqlite3.connect(path)
    counts = dict(connection.execute("SELECT text, count(*) FROM NVTX_EVENTS GROUP BY text"))
    (outside,) = connection.execute(
        "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL, NVTX_EVENTS"
        " WHERE text = 'measure' AND (CUPTI_ACTIVITY_KIND_KERNEL.start < NVTX_EVENTS.start"
        " OR CUPTI_ACTIVITY_KIND_KERNEL.end > NVTX_EVENTS.end)"
    ).fetchone()
    connection.close()
    assert outside == 0
    assert "warmup" not in counts
    assert (counts["measure"], counts["step"], counts["optimizer"]) == (1, 2, 2)
    steps, layers, passes = 2, 2, 2  # forward, and backward
    assert counts["block"] == steps * layers * passes
    assert list(tmp_path.glob("*.partial")) == []


def test_other_peoples_models_are_measured_with_the_annotated_function_as_a_range(
    run_benchmark, their_module, spec_values, tmp_path
):
    path = tmp_path / "capture.sqlite"
    result = run_benchmark(
        "--profiler", "torch", "--capture", str(path),
        constructor="their_module:BasicsTransformerLM",
        annotate={"scaled dot product attention": "their_module:scaled_dot_product_attention"},
    )  # fmt: skip
    connection = sqlite3.connect(path)
    counts = dict(connection.execute("SELECT text, count(*) FROM NVTX_EVENTS GROUP BY text"))
    connection.close()
    steps, layers, passes, tokens = 2, 2, 2, 2 * 8
    assert counts["scaled dot product attention"] == steps * layers * passes
    assert "block" not in counts
    projections, attention = 2 * tokens * 16 * 48, 2 * 2 * 2 * 8 * 8 * 16
    assert result["flops"] == {"forward": layers * (projections + attention) + 2 * tokens * 16 * 50}
    assert result["parameters"] == 50 * 16 + 2 * (48 * 16 + 48) + 50 * 16


def test_flops_and_parameters_of_our_model_are_known_from_the_shapes(run_benchmark):
    result = run_benchmark()
    assert result["parameters"] == 2 * 50 * 16 + 2 * (4 * 16 * 16 + 3 * 16 * 32 + 2 * 16) + 16
    assert result["flops"]["computing attention scores"] == 2 * 2 * (2 * 2 * 8 * 8) * 8


def test_a_loss_that_is_not_finite_leaves_neither_result_nor_capture(run_benchmark, their_module, tmp_path):
    class NotFinite(nn.Module):
        def __init__(self, **sizes) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((50,), torch.nan))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.weight.expand(*tokens.shape, 50)

    their_module.NotFinite = NotFinite
    with pytest.raises(FloatingPointError, match=r"loss of step 0 .* is nan.* appears in step 0 > forward, by"):
        run_benchmark(
            "--profiler", "torch", "--capture", str(tmp_path / "capture.sqlite"), constructor="their_module:NotFinite"
        )
    assert list(tmp_path.iterdir()) == []


def test_capture_and_torch_profiler_come_together(run_benchmark):
    with pytest.raises(SystemExit, match="--capture names the file of --profiler torch, memory, energy"):
        run_benchmark("--profiler", "torch")


@pytest.fixture(scope="module")
def finished_process(tmp_path_factory):
    """The program as a job starts it: with nsys's emitter, in a process of its own."""
    path = tmp_path_factory.mktemp("process") / "result.json"
    sizes = {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32, "rope_theta": 10000.0}
    dimensions = {"model": "tiny", "context_length": 8, "mode": "forward", "batch_size": 2, **DEFAULT_VALUES}
    spec = {
        "run": "one", "constructor": "cs336_model.model:TransformerLM", "sizes": sizes,
        "config": None, "arguments": PROJECT_ARGUMENTS, "annotate": {}, "replace": {},
        "vocab_size": 50, "dimensions": dimensions,
        "warmup_steps": 1, "measured_steps": 1, "seed": 0, "device": "cpu",
    }  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "cs336_model.program",
        benchmark.__name__,
        "--spec",
        json.dumps(spec),
        "--output",
        str(path),
    ]
    root = Path(benchmark.__file__).parents[2]
    done = subprocess.run([*command, "--profiler", "nsys"], capture_output=True, text=True, check=True, cwd=root)
    return done, json.loads(path.read_text())


def test_a_process_says_one_line_per_stage_and_prints_nothing_else(finished_process):
    done, _ = finished_process
    assert done.stdout == ""
    assert [line.partition(" in ")[0] for line in done.stderr.splitlines()] == [
        "one: initialised on cpu",
        "one: 1 warm-up step",
        "one: 1 measured step",
    ]


def test_the_stages_of_a_process_account_for_its_whole_time(finished_process):
    cost = finished_process[1]["cost_seconds"]
    stages = {name: seconds for name, seconds in cost.items() if name != "total"}
    assert set(stages) == set(STAGES)
    assert stages["import"] > 0.3, "importing torch alone takes longer"
    assert 0.8 * cost["total"] < sum(stages.values()) <= cost["total"] + 0.02  # the process's start is known to 10 ms
