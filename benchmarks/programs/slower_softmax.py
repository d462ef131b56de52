"""A softmax with one slower kernel, for the trial of the comparison: benchmarks/comparison.py."""

import math

import torch
from torch import Tensor

FACTOR = 3.5  # which slows a forward pass of large at context 512 on an H200 by 3 %


def softmax(scores: Tensor) -> Tensor:
    """cs336_model.model.functional.softmax, but its exponential is taken of FACTOR times as many elements. The kernels
    and their names stay the same. It has no backward pass, since it writes in place."""
    batch = len(scores)
    shifted = scores.new_empty((math.ceil(FACTOR * batch), *scores.shape[1:]))
    torch.sub(scores, scores.amax(dim=-1, keepdim=True), out=shifted[:batch])
    exponentials = shifted.exp_()[:batch]
    return exponentials / exponentials.sum(dim=-1, keepdim=True)
