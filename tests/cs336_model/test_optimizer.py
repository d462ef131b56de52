"""AdamW against torch's and against the paper's algorithm in numpy."""

import numpy as np
import torch
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

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


def test_two_steps_agree_with_the_paper_in_numpy():
    (parameter, _) = parameters = parameters_with_gradients()
    theta, gradient = parameter.detach().numpy().copy(), parameter.grad.numpy().copy()
    optimizer = AdamW(parameters, **SETTINGS)
    (beta1, beta2), first, second = SETTINGS["betas"], np.zeros_like(theta), np.zeros_like(theta)
    for step in (1, 2):
        optimizer.step()
        first, second = beta1 * first + (1 - beta1) * gradient, beta2 * second + (1 - beta2) * gradient**2
        corrected = (first / (1 - beta1**step)) / (np.sqrt(second / (1 - beta2**step)) + SETTINGS["eps"])
        theta = theta - SETTINGS["lr"] * corrected - SETTINGS["lr"] * SETTINGS["weight_decay"] * theta
    assert_close(parameter.detach(), torch.from_numpy(theta), rtol=1e-12, atol=1e-14)


def test_the_settings_are_those_of_torch_which_the_fused_optimizer_has():
    ours, theirs = vars(AdamW([])), torch.optim.AdamW(parameters_with_gradients()).defaults
    assert all(ours[name] == theirs[name] for name in SETTINGS)


def test_a_parameter_without_a_gradient_stays_as_it_is():
    first, second = parameters_with_gradients()
    second.grad, before = None, second.detach().clone()
    AdamW([first, second], **SETTINGS).step()
    assert torch.equal(second, before)


def test_a_step_keeps_its_state_and_fills_nothing():
    optimizer = AdamW(parameters_with_gradients())
    places = [moment.data_ptr() for moment in (*optimizer.first_moments, *optimizer.second_moments)]
    with Operators() as operators:
        optimizer.step()
    assert [moment.data_ptr() for moment in (*optimizer.first_moments, *optimizer.second_moments)] == places
    assert not [name for name in operators.names if "zero" in name or "fill" in name or "empty" in name]
    assert "addcdiv_" in operators.names


class Operators(TorchDispatchMode):
    """Collects the names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.names.append(operator.overloadpacket.__name__)
        return operator(*args, **(kwargs or {}))
