"""Shape checks run in tests: the model's signatures are enforced by beartype wherever these tests import it first."""

import json
import sys
from types import ModuleType

import pytest
from jaxtyping import install_import_hook

with install_import_hook(["cs336_model.model", "cs336_model.functional"], "beartype.beartype"):
    import cs336_model.model  # noqa: F401

import torch
from torch import nn

from cs336_model import ranges

SIZES = {"vocab_size": 50, "context_length": 8, "d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 32}


@pytest.fixture(autouse=True)
def no_ranges_left_on():
    """The emitter is chosen once per process; a test must not choose it for the next."""
    yield
    ranges.emit_ranges("none")


@pytest.fixture
def spec_values() -> dict:
    """A run of a model that takes milliseconds."""
    return {
        "run": "tiny_ctx8_train_step",
        "model": "tiny",
        "constructor": "cs336_model.model:TransformerLM",
        "constructor_args": {**SIZES, "rope_theta": 10000.0},
        "annotate": {},
        "mode": "train_step",
        "batch_size": 2,
        "context_length": 8,
        "vocab_size": 50,
        "precision": "fp32",
        "warmup_steps": 1,
        "measured_steps": 2,
        "seed": 0,
        "device": "cpu",
    }


@pytest.fixture
def run_benchmark(tmp_path, spec_values):
    """A function that runs the benchmark in this process with changed spec values and gives back its result."""
    from cs336_model import benchmark

    def run(*options: str, **changes) -> dict:
        path = tmp_path / "result.json"
        benchmark.main(["--spec", json.dumps(spec_values | changes), "--output", str(path), *options])
        return json.loads(path.read_text())

    return run


@pytest.fixture
def their_module(monkeypatch) -> ModuleType:
    """A module of the shape of other people's: a model that calls a function of its own module."""
    module = ModuleType("their_module")
    exec(THEIR_SOURCE, module.__dict__)
    monkeypatch.setitem(sys.modules, "their_module", module)
    return module


THEIR_SOURCE = '''
import torch
from torch import nn


def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.transpose(-2, -1) / Q.shape[-1] ** 0.5
    return torch.softmax(torch.where(mask, scores, float("-inf")), dim=-1) @ V


class BasicsTransformerLM(nn.Module):
    def __init__(self, vocab_size, context_length, d_model, num_layers, num_heads, d_ff, rope_theta):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.projections = nn.ModuleList(nn.Linear(d_model, 3 * d_model) for _ in range(num_layers))
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.register_buffer("mask", torch.ones(context_length, context_length, dtype=torch.bool).tril())

    def forward(self, tokens):
        x = self.embedding(tokens)
        for project in self.projections:
            x = x + scaled_dot_product_attention(*project(x).chunk(3, dim=-1), mask=self.mask)
        return self.head(x)
'''


class RaisingModel(nn.Module):
    """A model whose forward raises `error` from its call number `at` (0-based) on."""

    def __init__(self, error: BaseException, at: int, vocab_size: int = 50) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(vocab_size))
        self.error, self.at, self.calls = error, at, 0

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.calls > self.at:
            raise self.error
        return self.weight.expand(*tokens.shape, -1)
