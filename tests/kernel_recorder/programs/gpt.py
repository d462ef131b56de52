"""The GPT of tests/stand_ins/nanogpt, with the signature of nanoGPT: `model(tokens, targets)` gives logits and loss.

python gpt.py small|large
"""

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[2] / "stand_ins" / "nanogpt"))
from model import GPT, GPTConfig

STEPS = 12
SIZES = {
    "small": GPTConfig(block_size=32, vocab_size=65, n_layer=2, n_head=2, n_embd=32),
    "large": GPTConfig(block_size=1024, vocab_size=50304, n_layer=12, n_head=12, n_embd=768),
}

if __name__ == "__main__":
    config = SIZES[sys.argv[1]]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(config.vocab_size, (8, config.block_size + 1), device=device)

    for _ in range(STEPS):
        with torch.autocast(device, dtype=torch.bfloat16):
            _, loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
