"""FLOPs from the shapes against torch's own counter."""

import torch
from torch.utils.flop_counter import FlopCounterMode

from cs336_model.flops import forward_flops
from cs336_model.model import TransformerLM
from tests.cs336_model.conftest import make_spec

SIZES = {"d_model": 12, "num_layers": 3, "num_heads": 2, "d_ff": 20}


def test_forward_flops_equal_those_of_torchs_counter():
    with FlopCounterMode(display=False) as counter:
        TransformerLM(50, 16, **SIZES)(torch.zeros(2, 7, dtype=torch.int64))
    spec = make_spec(sizes=SIZES, context_length=7)
    assert forward_flops(spec) == counter.get_total_flops()
    assert forward_flops(make_spec(sizes=SIZES, context_length=7, batch_size=4, gpus=2, parallel="ddp")) == (
        counter.get_total_flops()
    ), "of the sequences of one process"
