"""The model against PyTorch's functions, in float64."""

import math

import pytest
import torch
import torch.utils.flop_counter
from torch import Tensor
from torch.nn import functional
from torch.testing import assert_close

from cs336_model.model import TransformerLM, cross_entropy, scaled_dot_product_attention, softmax
from cs336_model.spec import forward_flops
from tests.cs336_model.conftest import make_spec


@pytest.fixture(autouse=True)
def in_float64():
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def rotate(x: Tensor) -> Tensor:
    """Complex numbers x[2i] + j x[2i+1] turned by position * 10000^(-2i/d_head); (batch, head, position, d_head)."""
    length, d_head = x.shape[-2:]
    turns = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, d_head, 2) / d_head)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(turns), turns)).flatten(-2)


def compute_by_torchs_functions(weights: dict[str, Tensor], tokens: Tensor, layers: int, heads: int) -> Tensor:
    """Logits (batch, position, vocabulary)."""
    normalize = lambda x, weight: functional.rms_norm(x, x.shape[-1:], weight, eps=1e-5)  # noqa: E731
    x = weights["embedding.weight"][tokens]
    for layer in range(layers):
        own = {name.removeprefix(f"blocks.{layer}."): weight for name, weight in weights.items()}
        normed = normalize(x, own["attention_norm.weight"])
        queries, keys, values = (
            (normed @ own[f"attention.{name}.weight"].T).unflatten(-1, (heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        attended = torch.nn.functional.scaled_dot_product_attention(
            rotate(queries), rotate(keys), values, is_causal=True
        )
        x = x + attended.transpose(1, 2).flatten(-2) @ own["attention.output.weight"].T
        normed = normalize(x, own["feed_forward_norm.weight"])
        gate, up, down = (own[f"feed_forward.{name}.weight"].T for name in ("gate", "up", "down"))
        x = x + (functional.silu(normed @ gate) * (normed @ up)) @ down
    return normalize(x, weights["final_norm.weight"]) @ weights["head.weight"].T


def test_the_whole_model_agrees_with_torchs_functions():
    lm, tokens = TransformerLM(11, 8, 12, 2, 3, 20), torch.randint(11, (2, 6))
    assert_close(lm(tokens), compute_by_torchs_functions(dict(lm.named_parameters()), tokens, layers=2, heads=3))


def test_gradients_through_the_in_place_mask_and_the_softmax_of_large_scores_are_right():
    inputs = torch.randn(3, 1, 1, 3, 2, requires_grad=True)
    future = torch.ones(3, 3, dtype=torch.bool).triu(diagonal=1)
    assert torch.autograd.gradcheck(lambda qkv: scaled_dot_product_attention(*qkv, future), inputs)
    scores = torch.tensor([[1e4, 1e4 - 1.0, -torch.inf]])
    assert_close(softmax(scores)[0], torch.tensor([1 / (1 + math.exp(-1)), 1 / (1 + math.exp(1)), 0.0]))


def test_cross_entropy_is_that_of_torch():
    logits, targets = torch.randn(2, 3, 5) * 50, torch.randint(5, (2, 3))
    assert_close(cross_entropy(logits, targets), functional.cross_entropy(logits.mT, targets))


def test_forward_flops_equal_those_of_torchs_counter():
    sizes = {"d_model": 12, "num_layers": 3, "num_heads": 2, "d_ff": 20}
    with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
        TransformerLM(50, 16, **sizes)(torch.zeros(2, 7, dtype=torch.int64))
    spec = make_spec(sizes=sizes, context_length=7, batch_size=4, gpus=2, parallel="ddp")
    assert forward_flops(spec) == counter.get_total_flops(), "of the sequences of one process"
