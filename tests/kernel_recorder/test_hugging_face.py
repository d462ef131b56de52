"""A Llama of Hugging Face's, from a configuration, where their package is installed."""

import pytest

from kernel_tables.trace import Trace

pytest.importorskip("transformers", reason="transformers is not installed")

LLAMA = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM

sizes = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(**sizes, max_position_embeddings=32))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(4):
    tokens = torch.randint(64, (2, 16))
    model(input_ids=tokens, labels=tokens).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_llama_has_ranges_for_its_modules_forward_and_backward(record):
    done = record(LLAMA, "--skip", "2", "--steps", "2")
    assert done.status == 0, done.err
    with Trace(done.capture) as trace:
        tree = trace.range_tree().set_index("range")
    forward = "step > forward > LlamaForCausalLM > model > model.layers"
    assert tree.loc[forward, "instances"] == 2 * 2  # two steps, two layers
    assert tree.loc[f"{forward} > model.layers.self_attn > model.layers.self_attn.q_proj", "kernels"] > 0
    backward = forward.replace("step > forward >", "step > backward >")
    assert tree.loc[f"{backward} > model.layers.mlp > model.layers.mlp.up_proj", "kernels"] > 0
