"""The model against references in numpy, float64, written from the papers' formulas with loops over positions."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from cs336_model.model import TransformerLM, cross_entropy, scaled_dot_product_attention, softmax

TABLE = {
    "small": (768, 3072, 12, 12, 128.6),
    "10B": (4608, 12288, 50, 36, 12833),
}


@pytest.fixture(autouse=True)
def in_float64():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def softmax_in_numpy(row: np.ndarray) -> np.ndarray:
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def attention_in_numpy(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """One head, (position, d_head) each: every position looks at itself and what came before."""
    out = np.zeros_like(values)
    for position, query in enumerate(queries):
        seen = slice(0, position + 1)
        out[position] = softmax_in_numpy(keys[seen] @ query / np.sqrt(len(query))) @ values[seen]
    return out


def rope_in_numpy(x: np.ndarray, theta: float) -> np.ndarray:
    """(position, d_head): complex numbers x[2i] + j x[2i+1] turned by position * theta^(-2i/d_head)."""
    positions, d_head = x.shape
    turns = np.arange(positions)[:, None] * theta ** (-np.arange(0, d_head, 2) / d_head)
    turned = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * turns)
    return np.stack([turned.real, turned.imag], axis=-1).reshape(positions, d_head)


def rms_norm_in_numpy(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-5) * gain


def swiglu_in_numpy(x: np.ndarray, gate: np.ndarray, up: np.ndarray, down: np.ndarray) -> np.ndarray:
    gated = x @ gate.T
    return (gated / (1 + np.exp(-gated)) * (x @ up.T)) @ down.T


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
        matrices = (own[f"feed_forward.{name}.weight"] for name in ("gate", "up", "down"))
        x = x + swiglu_in_numpy(normed, *matrices)
    return rms_norm_in_numpy(x, weights["final_norm.weight"]) @ weights["head.weight"].T


@pytest.mark.parametrize("name", TABLE)
def test_parameter_counts_are_those_of_the_course_table(name):
    d_model, d_ff, layers, heads, millions = TABLE[name]
    with torch.device("meta"):
        lm = TransformerLM(10_000, 128, d_model, layers, heads, d_ff)
    count = sum(parameter.numel() for parameter in lm.parameters()) / 1e6
    assert count == pytest.approx(millions, abs=0.05 if millions < 1000 else 0.5)


def test_gradients_through_the_in_place_mask_are_right():
    inputs = torch.randn(3, 1, 1, 3, 2, requires_grad=True)
    future = torch.ones(3, 3, dtype=torch.bool).triu(diagonal=1)
    assert torch.autograd.gradcheck(lambda qkv: scaled_dot_product_attention(*qkv, future), inputs)


def test_softmax_and_its_gradient_survive_large_scores():
    scores = torch.tensor([[1e4, 1e4 - 1.0, -torch.inf]])
    assert_close(softmax(scores)[0], torch.tensor([1 / (1 + np.exp(-1)), 1 / (1 + np.exp(1)), 0.0]))
    assert torch.autograd.gradcheck(softmax, torch.randn(2, 4, requires_grad=True))


def test_cross_entropy_is_the_mean_negative_log_likelihood():
    logits, targets = torch.randn(2, 3, 5) * 50, torch.randint(5, (2, 3))
    likelihoods = [
        softmax_in_numpy(logits[index].numpy())[targets[index].item()] for index in np.ndindex(*targets.shape)
    ]
    assert_close(cross_entropy(logits, targets).item(), float(-np.log(likelihoods).mean()))
    assert torch.autograd.gradcheck(lambda x: cross_entropy(x, targets), torch.randn(2, 3, 5, requires_grad=True))


def test_the_whole_model_agrees_with_numpy():
    lm, tokens = TransformerLM(11, 8, 12, 2, 3, 20), torch.randint(11, (2, 6))
    weights = {name: weight.detach().numpy() for name, weight in lm.named_parameters()}
    for sequence, logits in zip(tokens, lm(tokens), strict=True):
        assert_close(logits, torch.from_numpy(transformer_in_numpy(weights, sequence.numpy(), layers=2, heads=3)))
