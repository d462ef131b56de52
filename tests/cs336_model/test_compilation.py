"""Compiled programs: one graph, no range inside it, and what a machine without a compiler says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed

from cs336_model.program.spec import RunSpec
from cs336_model.program.variants import effects
from cs336_model.program.variants.effects import compiler_settings
from cs336_model.program.without_times import Unsupported
from tests.cs336_model.specs import changed

ROOT = Path(__file__).parents[2]


@pytest.fixture
def traced(tmp_path, spec_values):
    """A function that runs a changed specification in a process that compiles nothing to code, and gives its result."""

    def run(**changes) -> dict:
        spec, path = json.dumps(changed(spec_values, **changes)), tmp_path / "result.json"
        command = [sys.executable, "-m", "tests.cs336_model.traced_program", spec, str(path)]
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
        return json.loads(path.read_text())

    return run


def test_a_compiled_model_is_one_graph_with_the_phases_around_it_and_no_range_inside(traced):
    result = traced(compile="on")
    opened, steps = result["opened"], 1 + 1 + 2  # compiled in one, one warm-up, two measured
    assert result["compilation"] == {"graphs": 1, "graphs_later": 0, "graph_breaks": 0}
    assert {name: opened[name] for name in ("step", "forward", "backward", "optimizer")} == dict.fromkeys(
        ("step", "forward", "backward", "optimizer"), steps
    )
    assert not {"block", "attention", "norm", "head"} & set(opened)
    assert len(result["step_seconds"]) == 2 and len(result["losses"]) == steps
    assert result["cost_seconds"]["compile"] > 0


def test_compiled_attention_is_one_graph_for_all_blocks_inside_the_range_of_attention(traced):
    result = traced(compile="attention", mode="forward")
    opened, passes, blocks = result["opened"], 1 + 1 + 2 + 1, 2  # the last pass is for the loss
    assert result["compilation"] == {"graphs": 1, "graphs_later": 0, "graph_breaks": 0}
    assert opened["attention"] == opened["feed-forward"] == passes * blocks
    assert not {"rope", "computing softmax", "qkv projection"} & set(opened)


def test_what_is_not_compiled_says_nothing_of_graphs(run_benchmark):
    result = run_benchmark()
    assert result["compilation"] is None and result["cost_seconds"]["compile"] == 0


def test_without_a_cpp_compiler_a_compiled_run_is_a_result_with_the_reason(tmp_path, spec_values):
    spec, path = json.dumps(changed(spec_values, compile="on", mode="forward")), tmp_path / "result.json"
    command = [sys.executable, "-m", "cs336_model.program.benchmark", "--spec", spec, "--output", str(path)]
    environment = os.environ | {"CXX": "/nowhere/no-such-compiler"}
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, env=environment)
    result = json.loads(path.read_text())
    assert result["status"] == "unsupported" and result["step_seconds"] == []
    assert result["reason"].startswith("compile on: InvalidCxxCompiler: No working C++ compiler found")
    assert "/nowhere" not in result["reason"]


def test_another_failure_while_compiling_is_no_result(spec_values):
    with pytest.raises(ZeroDivisionError), effects.compiling(RunSpec(**spec_values)):
        1 / 0  # noqa: B018


def test_memory_that_runs_out_while_compiling_is_out_of_memory(spec_values):
    with pytest.raises(torch.OutOfMemoryError), effects.compiling(RunSpec(**spec_values)):
        raise BackendCompilerFailed(print, torch.OutOfMemoryError("Tried to allocate 2 GiB"), None)


def test_every_process_compiles_with_an_empty_cache_that_is_gone_afterwards(spec_values):
    spec, folders = RunSpec(**changed(spec_values, compile="on")), []
    for _ in range(2):
        with compiler_settings(spec):
            folders.append(os.environ["TORCHINDUCTOR_CACHE_DIR"])
            assert os.listdir(folders[-1]) == []
    assert folders[0] != folders[1] and not any(map(os.path.exists, folders))


def test_what_a_backend_refuses_is_unsupported_with_its_own_reason(spec_values):
    with (
        pytest.raises(Unsupported, match="RuntimeError: no Triton here"),
        effects.compiling(RunSpec(**spec_values)),
    ):
        raise BackendCompilerFailed(print, RuntimeError("no Triton here"), None)
