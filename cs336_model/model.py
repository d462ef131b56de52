"""A pre-norm Transformer language model: RMSNorm, RoPE, causal attention, SwiGLU, untied head, no biases.

Attention is written out (scores, mask and scale, softmax, value product), not fused, so that each of its operations has
kernels and a range of its own. Nothing in `forward` reads a tensor on the host or copies one to the device.

Papers: Vaswani et al. 2017 (arXiv:1706.03762), Zhang & Sennrich 2019 (RMSNorm, arXiv:1910.07467),
Su et al. 2021 (RoPE, arXiv:2104.09864), Shazeer 2020 (SwiGLU, arXiv:2002.05202).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear, silu

from cs336_model.ranges import span


class Linear(nn.Module):
    """y = W x, with W (d_out, d_in) drawn from N(0, 2 / (d_in + d_out)), truncated at three standard deviations."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        std = math.sqrt(2 / (d_in + d_out))
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(d_out, d_in), std=std, a=-3 * std, b=3 * std))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight)


class Embedding(nn.Module):
    """The row of W (vocab_size, d_model) that belongs to each token; W drawn from N(0, 1), truncated at -3 and 3."""

    def __init__(self, vocab_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.trunc_normal_(torch.empty(vocab_size, d_model), a=-3.0, b=3.0))

    def forward(self, tokens: Tensor) -> Tensor:
        with span("embedding"):
            return embedding(tokens, self.weight)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x²) + eps) * g over the last dimension (RMSNorm, eq. 4); the mean in fp32 at least."""

    def __init__(self, d_model: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Tensor) -> Tensor:
        with span("norm"):
            wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
            inverse_rms = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + self.eps)
            return (wide * inverse_rms * self.weight).to(x.dtype)


class RotaryEmbedding(nn.Module):
    """Rotates the pair (x[2i], x[2i+1]) at position m by the angle m * theta^(-2i / d_head) (RoPE, eq. 15 and 34)."""

    def __init__(self, theta: float, d_head: int, context_length: int) -> None:
        super().__init__()
        frequencies = theta ** (-torch.arange(0, d_head, 2) / d_head)
        angles = torch.outer(torch.arange(context_length).to(frequencies), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x has the shape (batch, head, position, d_head)."""
        cos, sin = self.cos[: x.shape[-2]], self.sin[: x.shape[-2]]
        even, odd = x[..., 0::2], x[..., 1::2]
        rotated = torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1)
        return rotated.flatten(-2).to(x.dtype)


def softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension: max, subtract, exp, sum, divide; five kernels, 5 FLOPs per element. The maximum
    only keeps exp from overflowing; it cancels out of value and gradient, so it is detached."""
    exponentials = torch.exp(scores - scores.detach().amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def scaled_dot_product_attention(queries: Tensor, keys: Tensor, values: Tensor, future: Tensor) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d_head)) V, in which no query sees a key of its `future` (Vaswani et al., eq. 1). Queries,
    keys, values and output have the shape (batch, head, position, d_head), `future` (query, key)."""
    with span("scaled dot product attention"):
        with span("computing attention scores"):
            scores = queries @ keys.transpose(-2, -1)
        with span("mask and scale"):
            # in place: neither the product nor the scaling needs its result again in the backward pass
            scores.mul_(queries.shape[-1] ** -0.5).masked_fill_(future, -math.inf)
        with span("computing softmax"):
            weights = softmax(scores)
        with span("final matmul"):
            return weights @ values


class CausalSelfAttention(nn.Module):
    """MultiHead(x) = Concat(head_1 .. head_H) W_O, with d_head = d_model / H (Vaswani et al., section 3.2.2)."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.attend = num_heads, scaled_dot_product_attention
        self.query, self.key, self.value, self.output = (Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor, rope: RotaryEmbedding, future: Tensor) -> Tensor:
        with span("qkv projection"):
            queries, keys, values = (
                project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                for project in (self.query, self.key, self.value)
            )
            # The batched product wants packed heads. Rope packs queries and keys; without this line
            # the copy of the values would be made, and counted, in the final matmul.
            values = values.contiguous()
        with span("rope"):
            queries, keys = rope(queries), rope(keys)
        heads = self.attend(queries, keys, values, future)
        with span("output projection"):
            return self.output(heads.transpose(1, 2).flatten(-2))


class SwiGLU(nn.Module):
    """W_2 (SiLU(W_1 x) * W_3 x) (Shazeer 2020, eq. 6)."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = Linear(d_model, d_ff), Linear(d_model, d_ff), Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        with span("feed-forward"):
            gate, up = self.gate(x), self.up(x)
            with span("activation"):
                hidden = silu(gate) * up
            return self.down(hidden)


class Block(nn.Module):
    """z = x + Attention(RMSNorm(x));  y = z + SwiGLU(RMSNorm(z))."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int) -> None:
        super().__init__()
        self.attention_norm, self.attention = RMSNorm(d_model), CausalSelfAttention(d_model, num_heads)
        self.feed_forward_norm, self.feed_forward = RMSNorm(d_model), SwiGLU(d_model, d_ff)

    def forward(self, x: Tensor, rope: RotaryEmbedding, future: Tensor) -> Tensor:
        with span("block"):
            normed = self.attention_norm(x)
            with span("attention"):  # outside the module, which may be compiled and then opens no range
                attended = self.attention(normed, rope, future)
            with span("residual"):
                x = x + attended
            transformed = self.feed_forward(self.feed_forward_norm(x))
            with span("residual"):
                return x + transformed


class TransformerLM(nn.Module):
    """The next token's logits at every position. Under `torch.device(...)`, its weights are made on that device.

    One table of rotary angles and one mask (context² bytes) serve all layers. Parameters:
    2 vocab d_model + layers (4 d_model² + 3 d_model d_ff + 2 d_model) + d_model."""

    def __init__(
        self, vocab_size: int, context_length: int, d_model: int, num_layers: int, num_heads: int, d_ff: int,
        rope_theta: float = 10000.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embedding = Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(Block(d_model, num_heads, d_ff) for _ in range(num_layers))
        self.final_norm = RMSNorm(d_model)
        self.head = Linear(d_model, vocab_size)
        self.rope = RotaryEmbedding(rope_theta, d_model // num_heads, context_length)
        future = torch.ones(context_length, context_length, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("future", future, persistent=False)
        self.group_blocks = None  # or a function of the blocks, whose results `forward` calls in their place

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, position, vocabulary) for tokens (batch, position)."""
        length = tokens.shape[-1]
        future = self.future[:length, :length]
        x = self.embedding(tokens)
        for call in self.group_blocks(tuple(self.blocks)) if self.group_blocks else self.blocks:
            x = call(x, self.rope, future)
        x = self.final_norm(x)
        with span("head"):
            return self.head(x)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean over all positions of -log softmax(logits)[target] = logsumexp(logits) - logits[target], in fp32 at least.
    A 0-dim tensor on the logits' device: to read it would wait for the device."""
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    target_logits = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (torch.logsumexp(logits, dim=-1) - target_logits).mean()
