"""The course's scaled_dot_product_attention with a range around each part, as in its handout.

The operations are those of the course's function, with the same softmax. It needs the installed package of the course.
"""

import math

import torch
from cs336_basics import model as course
from torch import Tensor

from cs336_model import ranges
from cs336_model.ranges import span


def scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
    """softmax(Q K^T / sqrt(d_k)) V over the last two dimensions; a score whose mask is False counts as -inf."""
    with span(ranges.SCALED_DOT_PRODUCT_ATTENTION):
        with span(ranges.ATTENTION_SCORES):
            scores = torch.einsum("...qd,...kd->...qk", Q, K)
        with span(ranges.MASK_AND_SCALE):
            scores = scores / math.sqrt(K.shape[-1])
            if mask is not None:
                scores = torch.where(mask, scores, float("-inf"))
        with span(ranges.SOFTMAX):
            weights = course.softmax(scores, dim=-1)
        with span(ranges.FINAL_MATMUL):
            return torch.einsum("...qk,...kd->...qd", weights, V)
