"""Softmax and cross-entropy, written as the sequence of operations that a profile then shows."""
# ruff: noqa: F722 (jaxtyping's shapes are strings that are not Python)

import torch
from jaxtyping import Float, Int
from torch import Tensor


def softmax(scores: Float[Tensor, "*batch keys"]) -> Float[Tensor, "*batch keys"]:
    """Softmax over the last dimension: max, subtract, exp, sum, divide; five kernels, 5 FLOPs per element.

    The maximum only keeps exp from overflowing. It cancels out of value and gradient, so it is detached."""
    exponentials = torch.exp(scores - scores.detach().amax(dim=-1, keepdim=True))
    return exponentials / exponentials.sum(dim=-1, keepdim=True)


def cross_entropy(
    logits: Float[Tensor, "batch position vocab"], targets: Int[Tensor, "batch position"]
) -> Float[Tensor, ""]:
    """Mean over all positions of -log softmax(logits)[target] = logsumexp(logits) - logits[target], in fp32 at least.

    A 0-dim tensor on the logits' device. It is not read here, because that would wait for the device."""
    logits = logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits
    target_logits = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return (torch.logsumexp(logits, dim=-1) - target_logits).mean()
