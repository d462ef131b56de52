"""Models of other people: one of the shape of the course's, and ones that fail."""

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
