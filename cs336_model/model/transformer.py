"""A pre-norm Transformer language model: RMSNorm, RoPE, causal attention, SwiGLU, untied head, no biases.

Attention is written out (scores, mask and scale, softmax, value product), not fused, so that each of its operations
has separate kernels and a range. Nothing in `forward` reads a tensor on the host or copies one to the device.

Papers: Vaswani et al. 2017 (arXiv:1706.03762), Zhang & Sennrich 2019 (RMSNorm, arXiv:1910.07467),
Su et al. 2021 (RoPE, arXiv:2104.09864), Shazeer 2020 (SwiGLU, arXiv:2002.05202).
"""
# ruff: noqa: F722 (jaxtyping's shapes are strings that are not Python)

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, silu

from cs336_model import ranges
from cs336_model.model.functional import softmax
from cs336_model.ranges import span


class Linear(nn.Module):
    """y = W x, with W of shape (d_out, d_in) drawn from N(0, 2 / (d_in + d_out)), truncated at three standard
    deviations."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(d_out, d_in), std=std, a=-3 * std, b=3 * std))

    def forward(self, x: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        return linear(x, self.weight)


class Embedding(nn.Module):
    """The row of W (vocab_size, d_model) that belongs to each token; W drawn from N(0, 1), truncated at -3 and 3."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(vocab_size, d_model), std=1.0, a=-3.0, b=3.0))

    def forward(self, tokens: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position d_model"]:
        with span(ranges.EMBEDDING):
            return embedding(tokens, self.weight)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * g, over the last dimension (RMSNorm, eq. 4); the mean in fp32 at least."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        with span(ranges.NORM):
            wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
            inverse_rms = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
            return (wide * inverse_rms * self.weight).to(x.dtype)


class RotaryEmbedding(nn.Module):
    """Rotates the pair (x[2i], x[2i+1]) at position m by the angle m * theta^(-2i / d_head) (RoPE, eq. 15 and 34)."""

    cos: Float[Tensor, "context pair"]
    sin: Float[Tensor, "context pair"]

    def __init__(self, theta: float, d_head: int, context_length: int) -> None:
        super().__init__()
        frequencies = theta ** (-torch.arange(0, d_head, 2) / d_head)
        angles = torch.outer(torch.arange(context_length).to(frequencies), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Float[Tensor, "batch head position d_head"]) -> Float[Tensor, "batch head position d_head"]:
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        even, odd = x[..., 0::2], x[..., 1::2]
        rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return rotated.flatten(-2).to(x.dtype)


def scaled_dot_product_attention(
    queries: Float[Tensor, "batch head query d_head"],
    keys: Float[Tensor, "batch head key d_head"],
    values: Float[Tensor, "batch head key d_head"],
    future: Bool[Tensor, "query key"],
) -> Float[Tensor, "batch head query d_head"]:
    """softmax(Q K^T / sqrt(d_head)) V, in which no query sees a key of its `future` (Vaswani et al., eq. 1)."""
    with span(ranges.SCALED_DOT_PRODUCT_ATTENTION):
        with span(ranges.ATTENTION_SCORES):
            scores = queries @ keys.transpose(-2, -1)
        with span(ranges.MASK_AND_SCALE):
            # In place: neither the product nor the scaling needs its result again in the backward pass.
            scores.mul_(queries.shape[-1] ** -0.5).masked_fill_(future, -math.inf)
        with span(ranges.SOFTMAX):
            weights = softmax(scores)
        with span(ranges.FINAL_MATMUL):
            return weights @ values


class CausalSelfAttention(nn.Module):
    """MultiHead(x) = Concat(head_1 .. head_H) W_O, with d_head = d_model / H (Vaswani et al., section 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        if d_model % num_heads:
            raise ValueError(f"d_model {d_model} is not divisible by num_heads {num_heads}: heads have equal widths")
        self.num_heads, self.attend = num_heads, scaled_dot_product_attention
        self.query, self.key, self.value, self.output = (Linear(d_model, d_model) for _ in range(4))

    def forward(
        self, x: Float[Tensor, "batch position d_model"], rope: RotaryEmbedding, future: Bool[Tensor, "query key"]
    ) -> Float[Tensor, "batch position d_model"]:
        with span(ranges.QKV_PROJECTION):
            queries, keys, values = (self.split_heads(project(x)) for project in (self.query, self.key, self.value))
            # The batched product wants packed heads. Rope packs queries and keys; without this line
            # the copy of the values would be made, and counted, in the final matmul.
            values = values.contiguous()
        with span(ranges.ROPE):
            queries, keys = rope(queries), rope(keys)
        heads = self.attend(queries, keys, values, future)
        with span(ranges.OUTPUT_PROJECTION):
            return self.output(heads.transpose(1, 2).flatten(-2))

    def split_heads(
        self, x: Float[Tensor, "batch position d_model"]
    ) -> Float[Tensor, "batch {self.num_heads} position d_head"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class SwiGLU(nn.Module):
    """W_2 (SiLU(W_1 x) * W_3 x) (Shazeer 2020, eq. 6)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = Linear(d_model, d_ff), Linear(d_model, d_ff), Linear(d_ff, d_model)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        with span(ranges.FEED_FORWARD):
            gate, up = self.gate(x), self.up(x)
            with span(ranges.ACTIVATION):
                hidden = silu(gate) * up
            return self.down(hidden)


class Block(nn.Module):
    """z = x + Attention(RMSNorm(x));  y = z + SwiGLU(RMSNorm(z))."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = RMSNorm(d_model), CausalSelfAttention(d_model, num_heads)
        self.feed_forward_norm, self.feed_forward = RMSNorm(d_model), SwiGLU(d_model, d_ff)

    def forward(
        self, x: Float[Tensor, "batch position d_model"], rope: RotaryEmbedding, future: Bool[Tensor, "query key"]
    ) -> Float[Tensor, "batch position d_model"]:
        with span(ranges.BLOCK):
            normed = self.attention_norm(x)
            with span(ranges.ATTENTION):  # outside the module, which may be compiled and then opens no range
                attended = self.attention(normed, rope, future)
            with span(ranges.RESIDUAL):
                x = x + attended
            transformed = self.feed_forward(self.feed_forward_norm(x))
            with span(ranges.RESIDUAL):
                return x + transformed


class TransformerLM(nn.Module):
    """The next token's logits at every position. Under `torch.device(...)`, its weights are made on that device.

    One table of rotary angles and one mask (context^2 bytes) serve all layers. Parameters:
    2 vocab d_model + layers (4 d_model^2 + 3 d_model d_ff + 2 d_model) + d_model."""

    future: Bool[Tensor, "context context"]

    def __init__(
        self,
        vocab_size: int,
        context_length: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        rope_theta: float = 10000.0,
    ) -> None:
        super().__init__()
        self.embedding = Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(Block(d_model, num_heads, d_ff) for _ in range(num_layers))
        self.final_norm = RMSNorm(d_model)
        self.head = Linear(d_model, vocab_size)
        self.rope = RotaryEmbedding(rope_theta, d_model // num_heads, context_length)
        future = torch.ones(context_length, context_length, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("future", future, persistent=False)
        self.checkpoints_of = None  # or a function of the blocks, whose results `forward` calls in their place

    def forward(self, tokens: Int[Tensor, "batch position"]) -> Float[Tensor, "batch position vocab"]:
        length = tokens.shape[-1]
        future = self.future[:length, :length]
        x = self.embedding(tokens)
        calls = self.checkpoints_of(tuple(self.blocks)) if self.checkpoints_of else self.blocks
        for call in calls:
            x = call(x, self.rope, future)
        x = self.final_norm(x)
        with span(ranges.HEAD):
            return self.head(x)
