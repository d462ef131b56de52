"""AdamW against torch's."""

import torch
from torch.testing import assert_close

from cs336_model.optimizer import AdamW


def test_ten_steps_agree_with_torch_in_float64():
    torch.manual_seed(3)
    ours = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((3, 4), (5,))]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    our_optimizer, their_optimizer = AdamW(ours), torch.optim.AdamW(theirs)
    for step in range(10):
        for own, reference in zip(ours, theirs, strict=True):
            own.grad = reference.grad = (step + 1) * torch.randn_like(own)
        our_optimizer.step()
        their_optimizer.step()
    for own, reference in zip(ours, theirs, strict=True):
        assert_close(own, reference, rtol=1e-12, atol=1e-14)
