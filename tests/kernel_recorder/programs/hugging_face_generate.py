"""Text from a Llama of Hugging Face's, with its cache: a prompt, then token by token."""

import torch
from digest import print_digest
from transformers import LlamaConfig, LlamaForCausalLM

torch.manual_seed(12)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
model = LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=64)).eval().to(DEVICE)
for _ in range(3):
    tokens = torch.randint(64, (1, 6), device=DEVICE)
    print(model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=6, do_sample=True).tolist())
print_digest(model)
