"""Hugging Face's Llama from a configuration. python llama.py small|large"""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

STEPS = 12
SIZES = {
    "small": LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
    ),
    "large": LlamaConfig(
        vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=12,
        num_attention_heads=16, num_key_value_heads=8, max_position_embeddings=1024,
    ),
}  # fmt: skip

if __name__ == "__main__":
    config = SIZES[sys.argv[1]]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = LlamaForCausalLM(config).to(device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(config.vocab_size, (4, config.max_position_embeddings), device=device)

    for _ in range(STEPS):
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
