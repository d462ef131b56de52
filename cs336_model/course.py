"""The course's scaled_dot_product_attention with a range around each part, as in its handout.

The operations are those of the course's function, with its softmax. It needs the installed package of the course.
"""

import math

import torch
from cs336_basics import model as course
from torch import Tensor

from cs336_model.ranges import span


def scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q Kᵀ / sqrt(d_k)) V over the last two dimensions; a score whose mask is False counts as -inf."""
    with span("scaled dot product attention"):
        with span("computing attention scores"):
            scores = torch.einsum("...qd,...kd->...qk", Q, K)
        with span("mask and scale"):
            scores = scores / math.sqrt(K.shape[-1])
            if mask is not None:
                scores = torch.where(mask, scores, float("-inf"))
        with span("computing softmax"):
            weights = course.softmax(scores, dim=-1)
        with span("final matmul"):
            return torch.einsum("...qk,...kd->...qd", weights, V)
