"""FLOPs and bytes from the shapes against the course's figures and torch's own counter."""

import subprocess
import sys

import torch
from torch.utils.flop_counter import FlopCounterMode

from cs336_model.arithmetic.flops import ModelShape, forward_bytes, forward_flops, matmul_flops, parameter_count
from cs336_model.model.transformer import TransformerLM

SMALL_512 = ModelShape(4, 512, 10_000, 768, 12, 12, 3072)
TINY = ModelShape(2, 7, 50, 12, 3, 2, 20)


def tiny_model() -> TransformerLM:
    return TransformerLM(50, 16, 12, 3, 2, 20)


def test_one_attention_layer_of_small_at_512_has_the_flops_of_the_course():
    flops = forward_flops(SMALL_512)
    assert flops["computing attention scores"] // 12 == 1_610_612_736
    assert flops["final matmul"] // 12 == 1_610_612_736
    assert flops["computing softmax"] // 12 == 62_914_560


def test_forward_flops_equal_those_of_torchs_counter():
    with FlopCounterMode(display=False) as counter:
        tiny_model()(torch.zeros(2, 7, dtype=torch.int64))
    assert forward_flops(TINY)["forward"] == counter.get_total_flops()


def test_every_part_has_the_flops_that_torch_counts_in_its_modules():
    lm = tiny_model()
    with FlopCounterMode(display=False, depth=None) as counter:
        lm(torch.zeros(2, 7, dtype=torch.int64))
    counted = {name: sum(flops.values()) for name, flops in counter.get_flop_counts().items()}

    def in_blocks(*names: str) -> int:
        return sum(counted[f"TransformerLM.blocks.{layer}.{name}"] for layer in range(3) for name in names)

    parts = matmul_flops(TINY)
    assert parts["qkv projection"] == in_blocks("attention.query", "attention.key", "attention.value")
    assert parts["output projection"] == in_blocks("attention.output")
    assert parts["feed-forward"] == in_blocks("feed_forward")
    assert parts["head"] == counted["TransformerLM.head"]
    inside = sum(parts[name] for name in ("computing attention scores", "final matmul"))
    assert inside == in_blocks("attention") - parts["qkv projection"] - parts["output projection"]


def test_the_parameter_count_is_that_of_the_model():
    assert parameter_count(TINY) == sum(parameter.numel() for parameter in tiny_model().parameters())


def test_bytes_count_every_operand_and_result_once():
    shape = ModelShape(batch_size=1, context_length=2, vocab_size=5, d_model=4, num_layers=1, num_heads=2, d_ff=3)
    byte_counts = forward_bytes(shape, element_bytes=4)
    assert byte_counts["computing softmax"] == 4 * (8 + 8)  # 2 heads x 2 x 2 scores in, as many weights out
    assert byte_counts["computing attention scores"] == 4 * (8 + 8 + 8)  # queries and keys of 2 x 4 in, 8 scores out
    assert byte_counts["head"] == 4 * (20 + 8 + 10)  # weight 5 x 4, input 2 x 4, logits 2 x 5
    assert byte_counts["activation"] == 4 * (6 + 6 + 6)
    assert forward_bytes(shape, element_bytes=2)["head"] == byte_counts["head"] // 2


def test_what_the_analysis_may_use_imports_no_torch():
    modules = (
        "cs336_model.arithmetic.flops, cs336_model.arithmetic.memory, cs336_model.ranges, cs336_model.program.spec"
    )
    code = f"import sys; import {modules}; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
