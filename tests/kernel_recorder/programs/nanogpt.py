"""A small GPT as nanoGPT is written: gradient accumulation, clipping, an evaluation every seventh step."""

import torch
from digest import print_digest
from torch import nn
from torch.nn import functional as F

torch.manual_seed(1)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (part.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(x.shape))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), CausalSelfAttention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, words=64, width=32, heads=4, layers=2, length=16):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(words, width),
                "wpe": nn.Embedding(length, width),
                "h": nn.ModuleList([Block(width, heads) for _ in range(layers)]),
            }
        )
        self.lm_head = nn.Linear(width, words, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight

    def forward(self, tokens):
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](torch.arange(tokens.shape[1], device=DEVICE))
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(x)


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


if __name__ == "__main__":
    model = GPT().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(14):
        if step % 7 == 6:
            model.eval()
            with torch.no_grad():
                losses = [loss_of(model, torch.randint(64, (4, 17), device=DEVICE)).item() for _ in range(3)]
            print(f"step {step}: validation loss {sum(losses) / 3:.6f}")
            model.train()
        for _ in range(2):
            (loss_of(model, torch.randint(64, (4, 17), device=DEVICE)) / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    print_digest(model)
