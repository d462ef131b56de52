"""Errors of an attention against causal attention in fp64, which is computed here from its formulas, pass by pass."""

import math

import torch
from torch import Tensor

BLOCK_ELEMENTS = 2**24  # scores that are in memory at once, 8 bytes each


def attention_errors(inputs: list[Tensor], upstream: Tensor, computed: list[Tensor]) -> dict[str, float]:
    """The largest error of a row of the output, and of a row of any gradient. `inputs` are queries, keys and values,
    `upstream` is the gradient of the output, and `computed` has the output and the gradients of the inputs.

    A row is a sum of terms; in the output, a term is a weight times a row of the values. Its error is the norm of the
    difference, divided by the root of the sum of the terms' squares: that is what errors of 100 % in every term would
    give, if they are independent. So rows in which terms cancel, and rows with small terms, count like others."""
    exact, squares = exact_attention(*(tensor.detach().double() for tensor in (*inputs, upstream)))
    output_error, *gradient_errors = (
        float(((result.double() - sums).norm(dim=-1) / square_sums.sum(dim=-1).sqrt()).max())
        for result, sums, square_sums in zip(computed, exact, squares, strict=True)
    )
    return {"output_error": output_error, "gradient_error": max(gradient_errors)}


def exact_attention(
    queries: Tensor, keys: Tensor, values: Tensor, upstream: Tensor
) -> tuple[list[Tensor], list[Tensor]]:
    """(results, sums of the squares of their terms) of the output and of the gradients of queries, keys and values, in
    the type of the inputs. The scores of some queries are in memory at a time."""
    length, scale = queries.shape[-2], queries.shape[-1] ** -0.5
    results, squares = ([torch.zeros_like(queries) for _ in range(4)] for _ in range(2))
    row_count = max(1, BLOCK_ELEMENTS // (queries.numel() // queries.shape[-1]))
    for first in range(0, length, row_count):
        rows = slice(first, first + row_count)
        row_queries, row_upstream = queries[..., rows, :], upstream[..., rows, :]
        scores = row_queries @ keys.mT * scale
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(diagonal=first + 1)
        weights = scores.masked_fill(future, -math.inf).softmax(dim=-1)
        output = weights @ values
        # The gradient of softmax is weights * (weight gradients - row means). A row's mean is the sum of weights *
        # weight gradients over the row, which is also the sum of upstream * output. So score gradients have two terms.
        weight_gradients = row_upstream @ values.mT
        row_means = (row_upstream * output).sum(dim=-1, keepdim=True)
        score_gradients = weights * (weight_gradients - row_means) * scale
        score_squares = (weights * scale) ** 2 * (weight_gradients**2 + row_means**2)
        results[0][..., rows, :], squares[0][..., rows, :] = output, weights**2 @ values**2
        results[1][..., rows, :], squares[1][..., rows, :] = score_gradients @ keys, score_squares @ keys**2
        results[2] += score_gradients.mT @ row_queries
        squares[2] += score_squares.mT @ row_queries**2
        results[3] += weights.mT @ row_upstream
        squares[3] += (weights**2).mT @ row_upstream**2
    return results, squares
