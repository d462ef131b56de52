"""A GPT with the signatures of nanoGPT's: GPT(GPTConfig(...)), and (logits, loss) from the tokens and their targets."""

from dataclasses import dataclass

from torch import nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention


@dataclass
class GPTConfig:
    block_size: int = 1024
    vocab_size: int = 50304
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)

    def forward(self, x):
        heads = (part.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        return scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(-2)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn = Attention(config)

    def forward(self, x):
        return x + self.attn(x)


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(config.vocab_size, config.n_embd), "h": blocks})
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        x = self.transformer.wte(idx)
        for block in self.transformer.h:
            x = block(x)
        if targets is None:
            return self.lm_head(x[:, [-1]]), None
        logits = self.lm_head(x)
        return logits, cross_entropy(logits.flatten(0, 1), targets.flatten())
