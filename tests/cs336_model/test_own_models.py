"""Other people's models as docs/models.md declares them, from the configuration to the ranges of their capture."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
import yaml

from cs336_model.results import Capture
from cs336_model.spec import Spec
from kernel_tables.profile import read
from workflow.grid import describe, expand_grid, read_config

ROOT = Path(__file__).parents[2]
STAND_INS = ROOT / "tests" / "stand_ins"
WRITTEN = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
COURSE, COURSE_SPELT_OUT, GPT, LLAMA = re.findall(r"```yaml\n(.*?)```", WRITTEN, re.DOTALL)
TINY = {"d_model": 16, "d_ff": 32, "num_layers": 2, "num_heads": 2}


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    """The stand-ins can be imported; what a test changed in them is gone at its end."""
    for folder in (STAND_INS, STAND_INS / "nanogpt"):
        monkeypatch.syspath_prepend(folder)
    yield
    for name in ("model", "cs336_basics", "cs336_basics.model", "cs336_model.course"):
        sys.modules.pop(name, None)


def describe_run(declared: str) -> Spec:
    """What the capture of a tiny training run is told by this part of a configuration."""
    config = yaml.safe_load((ROOT / "config.yaml").read_text())
    config |= {"grids": {"g": [{"models": ["tiny"], "context_lengths": [8], "modes": ["train_step"]}]}, "grid": "g"}
    config |= {"vocab_size": 50, "batch_size": 2, "device": "cpu", "models": {"tiny": TINY}}
    config |= {"capture": {"backend": "torch", "warmup_steps": 1, "measured_steps": 2}} | yaml.safe_load(declared)
    checked = read_config(config)
    (run,) = expand_grid(checked).values()
    return describe(checked, run, "capture")


@pytest.fixture
def capture(tmp_path, measure_spec):
    """A function that captures a run in this process: its result, and the kernels of each range below a step."""

    def run(spec: Spec) -> tuple[Capture, dict[str, int]]:
        sqlite = tmp_path / "capture.sqlite"
        result = measure_spec(spec, "--profiler", "torch", "--capture", str(sqlite))
        with read(sqlite) as trace:
            kernels = trace.ranges(tree=True).set_index("range")["kernels"]
        assert result.status == "complete" and len(result.losses) == 3
        return result, kernels.rename(lambda path: path.removeprefix("measure > step > ")).to_dict()

    return run


def test_the_courses_model_has_a_range_for_every_module_and_for_every_part_of_attention(capture):
    assert describe_run(COURSE) == describe_run(COURSE_SPELT_OUT)
    _, kernels = capture(describe_run(COURSE))
    for phase in ("forward", "backward"):
        attention = f"{phase} > BasicsTransformerLM > layers > layers.attn"
        parts = ("computing attention scores", "mask and scale", "computing softmax", "final matmul")
        assert all(kernels[f"{attention} > scaled dot product attention > {part}"] > 0 for part in parts)
        assert kernels[f"{attention} > layers.attn.q_proj"] > 0


def test_the_attention_that_is_put_in_its_place_computes_what_the_courses_does(monkeypatch):
    course = import_module("cs336_basics.model")
    ours = import_module("cs336_model.course").scaled_dot_product_attention
    Q, K, V = (torch.randn(2, 3, 5, 4, dtype=torch.float64) for _ in range(3))
    for mask in (None, torch.ones(5, 5, dtype=torch.bool).tril()):
        assert torch.allclose(ours(Q, K, V, mask), course.scaled_dot_product_attention(Q, K, V, mask), rtol=1e-12)
    monkeypatch.setattr(course, "softmax", lambda x, dim: x * 0)
    assert (ours(Q, K, V) == 0).all(), "the softmax is the one that is installed"


def test_a_model_that_takes_a_config_object_is_measured_with_the_loss_that_it_computes(capture):
    result, kernels = capture(describe_run(GPT))
    assert result.parameters == 50 * 16 + 2 * (16 * 48 + 48)
    assert kernels["backward > GPT > transformer.h > transformer.h.attn > transformer.h.attn.c_attn"] > 0
    assert kernels["loss"] == 2, "nothing but detach: it is computed in forward"


def test_a_llama_is_measured_from_a_configuration(capture):
    pytest.importorskip("transformers", reason="transformers is not installed")
    _, kernels = capture(describe_run(LLAMA))
    layers = "backward > LlamaForCausalLM > model > model.layers"
    assert kernels[f"{layers} > model.layers.mlp > model.layers.mlp.up_proj"] > 0
