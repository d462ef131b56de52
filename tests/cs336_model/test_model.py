"""The model against references in numpy, float64, written from the papers' formulas with loops over positions."""

import numpy as np
import pytest
import torch
import torch.utils.flop_counter
from torch.testing import assert_close

from cs336_model.flops import forward_flops
from cs336_model.model import TransformerLM, cross_entropy, scaled_dot_product_attention, softmax
from tests.cs336_model.conftest import make_spec


@pytest.fixture(autouse=True)
def in_float64():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def attention_in_numpy(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """One head, (position, d_head) each: every position looks at itself and what came before."""
    out = np.zeros_like(values)
    for position, query in enumerate(queries):
        seen = slice(0, position + 1)
        weights = np.exp(keys[seen] @ query / np.sqrt(len(query)))
        out[position] = weights / weights.sum() @ values[seen]
    return out


def rope_in_numpy(x: np.ndarray, theta: float) -> np.ndarray:
    """(position, d_head): complex numbers x[2i] + j x[2i+1] turned by position * theta^(-2i/d_head)."""
    positions, d_head = x.shape
    turns = np.arange(positions)[:, None] * theta ** (-np.arange(0, d_head, 2) / d_head)
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * turns)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(positions, d_head)


def rms_norm_in_numpy(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * gain


def transformer_in_numpy(weights: dict[str, np.ndarray], tokens: np.ndarray, layers: int, heads: int) -> np.ndarray:
    """Logits (position, vocab) of one sequence."""
    x = weights["embedding.weight"][tokens]
    for layer in range(layers):
        own = {name.removeprefix(f"blocks.{layer}."): weight for name, weight in weights.items()}
        normed = rms_norm_in_numpy(x, own["attention_norm.weight"])
        projected = [normed @ own[f"attention.{name}.weight"].T for name in ("query", "key", "value")]
        outputs = []
        for query, key, value in zip(*(np.split(matrix, heads, axis=-1) for matrix in projected), strict=True):
            outputs.append(attention_in_numpy(rope_in_numpy(query, 10000.0), rope_in_numpy(key, 10000.0), value))
        x = x + np.concatenate(outputs, axis=-1) @ own["attention.output.weight"].T
        normed = rms_norm_in_numpy(x, own["feed_forward_norm.weight"])
        gate, up, down = (own[f"feed_forward.{name}.weight"].T for name in ("gate", "up", "down"))
        x = x + (normed @ gate / (1 + np.exp(-(normed @ gate))) * (normed @ up)) @ down
    return rms_norm_in_numpy(x, weights["final_norm.weight"]) @ weights["head.weight"].T


def test_the_whole_model_agrees_with_numpy():
    lm, tokens = TransformerLM(11, 8, 12, 2, 3, 20), torch.randint(11, (2, 6))
    weights = {name: weight.detach().numpy() for name, weight in lm.named_parameters()}
    for sequence, logits in zip(tokens, lm(tokens), strict=True):
        assert_close(logits, torch.from_numpy(transformer_in_numpy(weights, sequence.numpy(), layers=2, heads=3)))


def test_gradients_through_the_in_place_mask_and_the_softmax_of_large_scores_are_right():
    inputs = torch.randn(3, 1, 1, 3, 2, requires_grad=True)
    future = torch.ones(3, 3, dtype=torch.bool).triu(diagonal=1)
    assert torch.autograd.gradcheck(lambda qkv: scaled_dot_product_attention(*qkv, future), inputs)
    scores = torch.tensor([[1e4, 1e4 - 1.0, -torch.inf]])
    assert_close(softmax(scores)[0], torch.tensor([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0.0]))


def test_cross_entropy_is_that_of_torch():
    logits, targets = torch.randn(2, 3, 5) * 50, torch.randint(5, (2, 3))
    assert_close(cross_entropy(logits, targets), torch.nn.functional.cross_entropy(logits.mT, targets))


def test_forward_flops_equal_those_of_torchs_counter():
    sizes = {"d_model": 12, "num_layers": 3, "num_heads": 2, "d_ff": 20}
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        TransformerLM(50, 16, **sizes)(torch.zeros(2, 7, dtype=torch.int64))
    spec = make_spec(sizes=sizes, context_length=7, batch_size=4, gpus=2, parallel="ddp")
    assert forward_flops(spec) == counter.get_total_flops(), "of the sequences of one process"
