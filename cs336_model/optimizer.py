"""AdamW as the course writes it: a loop over the parameters, in place, with state that is allocated once."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn


class AdamW:
    """Adam with decoupled weight decay, in PyTorch's variant: weights decay by lr * weight_decay in a step. In the
    paper (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2), lr is not a factor of the decay.

    A step launches nine small kernels for each parameter, thousands for a large model: on a fast device the host is the
    limit, as a profile shows. Of parameters that several processes share, each process updates its part."""

    lr, betas, eps, weight_decay = 1e-3, (0.9, 0.999), 1e-8, 0.01  # as in torch.optim.AdamW

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters, self.steps = list(parameters), 0
        self.first_moments = [torch.zeros_like(take_local(parameter)) for parameter in self.parameters]
        self.second_moments = [torch.zeros_like(take_local(parameter)) for parameter in self.parameters]

    @torch.no_grad()
    def step(self) -> None:
        """Updates every parameter that has a gradient. The bias corrections are host numbers: no copy, no wait."""
        self.steps += 1
        beta1, beta2 = self.betas
        step_size = self.lr / (1 - beta1**self.steps)
        second_correction = math.sqrt(1 - beta2**self.steps)
        for parameter, first, second in zip(self.parameters, self.first_moments, self.second_moments, strict=True):
            if parameter.grad is None:
                continue
            parameter, gradient = take_local(parameter), take_local(parameter.grad)
            parameter.mul_(1 - self.lr * self.weight_decay)
            first.mul_(beta1).add_(gradient, alpha=1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            denominator = second.sqrt().div_(second_correction).add_(self.eps)
            parameter.addcdiv_(first, denominator, value=-step_size)


def take_local(tensor: Tensor) -> Tensor:
    """The part of a tensor that this process has: all of it, unless it is a DTensor, whose class is slow to import."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor
