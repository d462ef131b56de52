"""A softmax with one slower kernel, for the trial of the comparison: benchmarks/comparison.py."""

import math

import torch
from torch import Tensor

MORE = 3.5  # times the elements; 3 % of a forward pass of large at context 512 on an H200


def softmax(scores: Tensor) -> Tensor:
    """cs336_model.model.functional.softmax, whose exponential is taken of MORE times as many elements. Nothing else
    changes: as many kernels, of the same names. Without a backward pass, since it writes in place."""
    batch = len(scores)
    shifted = scores.new_empty((math.ceil(MORE * batch), *scores.shape[1:]))
    torch.sub(scores, scores.amax(dim=-1, keepdim=True), out=shifted[:batch])
    exponentials = shifted.exp_()[:batch]
    return exponentials / exponentials.sum(dim=-1, keepdim=True)
