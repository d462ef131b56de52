"""AdamW against torch's."""

import torch
from torch.testing import assert_close

from cs336_model.optimizer import AdamW

SETTINGS = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}


def parameters_with_gradients() -> list[torch.nn.Parameter]:
    torch.manual_seed(3)
    parameters = [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((3, 4), (5,))]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    return parameters


def test_ten_steps_agree_with_torch_in_float64():
    ours, theirs = parameters_with_gradients(), parameters_with_gradients()
    our_optimizer, their_optimizer = AdamW(ours, **SETTINGS), torch.optim.AdamW(theirs, **SETTINGS)
    for step in range(10):
        for own, reference in zip(ours, theirs, strict=True):
            own.grad, reference.grad = (step + 1) * own.grad.cos(), (step + 1) * reference.grad.cos()
        our_optimizer.step()
        their_optimizer.step()
    for own, reference in zip(ours, theirs, strict=True):
        assert_close(own, reference, rtol=1e-12, atol=1e-14)


def test_the_settings_are_those_of_torch_which_the_fused_optimizer_has():
    ours, theirs = vars(AdamW([])), torch.optim.AdamW(parameters_with_gradients()).defaults
    assert all(ours[name] == theirs[name] for name in SETTINGS)
