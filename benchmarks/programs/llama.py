"""Hugging Face's Llama from a configuration. python llama.py small|large"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

STEPS = 12
SIZES = {"small": (64, 128, 2, 4, 128, 32), "large": (1024, 2816, 12, 16, 32000, 1024)}

if __name__ == "__main__":
    width, inner, layers, heads, words, length = SIZES[sys.argv[1]]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    config = LlamaConfig(
        vocab_size=words, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads // 2, max_position_embeddings=length,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(words, (4, length), device=device)

    for _ in range(STEPS):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
