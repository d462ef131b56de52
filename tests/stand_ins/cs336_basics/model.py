"""A Transformer with the constructor, the names of modules and the functions of the course's."""

import torch
from torch import nn


def softmax(x, dim=-1):
    exponentials = torch.exp(x - x.amax(dim=dim, keepdim=True))
    return exponentials / exponentials.sum(dim=dim, keepdim=True)


def scaled_dot_product_attention(Q, K, V, mask=None):
    scores = Q @ K.mT / K.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.where(mask, -torch.inf)
    return softmax(scores, dim=-1) @ V


class CausalMultiHeadSelfAttention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads, self.q_proj = num_heads, nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        heads = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        positions = torch.arange(x.shape[1], device=x.device)
        mask = positions[:, None] >= positions
        return scaled_dot_product_attention(K=heads, Q=heads, V=heads, mask=mask).transpose(1, 2).flatten(-2)


class TransformerBlock(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attn = CausalMultiHeadSelfAttention(d_model, num_heads)

    def forward(self, x):
        return x + self.attn(x)


class BasicsTransformerLM(nn.Module):
    def __init__(self, vocab_size, context_length, d_model, num_layers, num_heads, d_ff, rope_theta=10_000.0):
        super().__init__()
        self.token_embeddings = nn.Embedding(vocab_size, d_model)
        self.layers = nn.ModuleList(TransformerBlock(d_model, num_heads) for _ in range(num_layers))
        self.lm_head = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, x):
        x = self.token_embeddings(x)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)
