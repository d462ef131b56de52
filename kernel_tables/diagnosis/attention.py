"""Attention as separate kernels, found by its launches: a product, a softmax, a product.

No name of a module is expected: the same one is called attention, attn or self_attn. On each stream, the products next
to a softmax belong to attention if there are only elementwise work, reductions, random numbers, copies and fills
between them, and so do the copies around them, which lay out heads for the products; the projections do not. Both
products are launched in one pass of one step: a softmax between the last product of a forward pass and the first one of
its backward pass is that of a loss. A softmax in separate kernels is one reduction or more, an exponential and one
reduction. If what follows is reduced once more before the next product, it is a loss, too. The backward pass has two
products on each side of the softmax; if the softmax is in separate kernels, its backward pass is searched in the ranges
of the forward chains.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.scope import Scope

INNER_CLASSES = (  # of what may lie between the products
    "elementwise", "reduction", "random", "softmax", "triton-fused/softmax", "memcpy", "memset", "other/view",
    "other/allocation",
)  # fmt: skip
# In cross entropy and samplers. The last template argument but one of the warp kernels is is_log_softmax.
LOG_SOFTMAX = re.compile(r"(?i)log_?softmax|softmax_warp_\w+<[^<>]*, (?:true|\(bool\)1), (?:true|false|\(bool\)\d)>")
SOFTMAX_BACKWARD = re.compile(r"(?i)softmax\w*_?backward")
EXPONENTIAL = re.compile(r"exp_kernel|aten::exp_?$")
SPLIT_PRODUCT = re.compile(r"(?i)split_?k\w*reduce")  # the second kernel of one product
LINEAR = re.compile(r"aten::(?:linear|addmm)$")  # a layer, not a product of two activations
MIN_BETWEEN_NS = 10_000  # between the products: a softmax over a row of logits takes less than one over S x S
MAX_COPIES = 4  # on each side of a chain: of queries, keys and values, or of their gradients
MAX_BETWEEN_TWINS = 2  # activities, without views, between the two products of one node of the backward pass


@dataclass(frozen=True)
class Attention:
    """Masks by activity: those in chains of the forward pass and of the backward pass, and all products."""

    forward: np.ndarray
    backward: np.ndarray
    is_product: np.ndarray
    is_doubtful: bool = False  # chains are outside of the ranges in a step, and products inside: it may be a loss

    @property
    def chains(self) -> np.ndarray:
        return self.forward | self.backward


@dataclass(frozen=True)
class _Kinds:
    """By activity: its possible roles in a chain. No chain contains activities that are `breaks`."""

    product: np.ndarray
    softmax: np.ndarray
    softmax_backward: np.ndarray
    reduction: np.ndarray
    exponential: np.ndarray
    view: np.ndarray
    copy: np.ndarray
    breaks: np.ndarray


def attention_of(scope: Scope, in_backward: np.ndarray) -> Attention:
    """The chains of attention; `in_backward` is, by activity, whether a backward pass launched it."""
    kinds = _kinds(scope)
    forward, backward = (np.zeros(len(scope.activities), bool) for _ in range(2))
    if not (kinds.softmax | kinds.softmax_backward | kinds.exponential).any():
        return Attention(forward, backward, kinds.product)
    passes = _passes(scope)
    streams = [_Stream(scope, kinds, passes, rows) for device in scope.devices for rows in scope.streams(device)]
    for stream in streams:
        forward[stream.forward()] = True
    outside = passes >= len(scope.trace.range_arrays)
    is_doubtful = bool((forward & outside).any() and (scope.is_of_class("gemm") & ~outside & ~in_backward).any())
    if is_doubtful:
        forward &= ~outside
    for stream in streams:
        backward[stream.backward(stream.has_softmax_backward)] = True
    if not backward.any() and forward.any():
        parts = _parts(scope, forward)
        is_candidate = in_backward & scope.is_in_range(lambda name: name in parts)
        for stream in streams:
            backward[stream.backward(stream.reduces & stream.is_within(is_candidate))] = True
    return Attention(forward, backward, kinds.product, is_doubtful)


def _kinds(scope: Scope) -> _Kinds:
    names = scope.activities.names

    def fits(pattern: re.Pattern) -> np.ndarray:
        return scope.with_names([bool(pattern.search(name)) for name in names])

    is_split, is_softmax = fits(SPLIT_PRODUCT), scope.is_of_class("softmax", "triton-fused/softmax")
    view = scope.is_of_class("other/view", "other/allocation")
    product = scope.is_of_class("gemm") & ~is_split & ~fits(LINEAR)
    goes_on = scope.is_of_class(*INNER_CLASSES) | scope.is_memory | is_split
    return _Kinds(
        product=product,
        softmax=is_softmax & ~fits(SOFTMAX_BACKWARD),
        softmax_backward=is_softmax & fits(SOFTMAX_BACKWARD),
        reduction=scope.is_of_class("reduction"),
        exponential=fits(EXPONENTIAL),
        view=view,
        copy=scope.is_of_class("elementwise/copy") | view | scope.is_memory,
        breaks=~(product | goes_on) | fits(LOG_SOFTMAX),
    )


class _Stream:
    """The stretches between neighbouring products of a stream. An array "by stretch" has one entry for each."""

    def __init__(self, scope: Scope, kinds: _Kinds, passes: np.ndarray, rows: np.ndarray):
        self._rows, self._kinds = rows, kinds
        self._product = np.flatnonzero(kinds.product[rows])
        product_pass = passes[rows[self._product]]
        time_ns = np.where(kinds.product[rows], 0, scope.activities.duration_ns[rows])
        self._is_closed = (self._totals(kinds.breaks[rows]) == 0) & (self._totals(time_ns) >= MIN_BETWEEN_NS)
        self._is_closed &= product_pass[:-1] == product_pass[1:]
        self._is_closed &= (self._totals(kinds.softmax[rows]) == 0) | (self._totals(kinds.softmax_backward[rows]) == 0)

    @property
    def reduces(self) -> np.ndarray:
        """By stretch: whether it may be the backward pass of a softmax in separate kernels."""
        kinds, rows = self._kinds, self._rows
        others = ~(kinds.reduction | kinds.view | kinds.product)[rows]
        return self._is_closed & (self._totals(kinds.reduction[rows]) > 0) & (self._totals(others) > 1)

    @property
    def has_softmax_backward(self) -> np.ndarray:
        """By stretch: whether it holds the backward pass of a softmax."""
        return self._is_closed & (self._totals(self._kinds.softmax_backward[self._rows]) > 0)

    def is_within(self, mask: np.ndarray) -> np.ndarray:
        """By stretch: whether all its activities, with its products, are in `mask` (by activity)."""
        outside = ~mask[self._rows]
        first, last = self._product[:-1], self._product[1:]
        return (self._totals(outside) == 0) & ~outside[first] & ~outside[last]

    def forward(self) -> np.ndarray:
        """The activities of the chains of the forward pass: a softmax that no reduction follows, or an exponential with
        reductions before and one after it."""
        as_one = self._has_activity(self._kinds.softmax, lambda before, after: after == 0)
        written_out = self._has_activity(self._kinds.exponential, lambda before, after: (before > 0) & (after == 1))
        return self._members(self._is_closed & (as_one | written_out))

    def backward(self, wanted: np.ndarray) -> np.ndarray:
        """The activities of the backward chains around the `wanted` stretches, with up to two products on each side."""
        if not wanted.any():
            return self._rows[:0]
        work = ~self._kinds.view[self._rows]
        is_twin = (self._totals(self._kinds.breaks[self._rows]) == 0) & (self._totals(work) <= MAX_BETWEEN_TWINS)
        before, after = np.append(wanted[1:], False), np.append(False, wanted[:-1])
        return self._members(wanted | (is_twin & (before | after)))

    def _members(self, stretches: np.ndarray) -> np.ndarray:
        """The activities of `stretches`, with the products at their ends and the copies around these."""
        chosen = np.flatnonzero(stretches)
        inside = np.zeros(len(self._rows) + 1, np.int64)
        np.add.at(inside, self._product[chosen], 1)
        np.add.at(inside, self._product[chosen + 1] + 1, -1)
        members, is_copy = np.cumsum(inside)[:-1] > 0, self._kinds.copy[self._rows]
        for _ in range(MAX_COPIES):
            is_beside = np.append(members[1:], False) | np.append(False, members[:-1])
            members = members | (is_beside & is_copy)
        return self._rows[members]

    def _has_activity(self, mask: np.ndarray, fits: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """By stretch: whether it has an activity of `mask` for which `fits` the numbers of reductions before and after
        it in the stretch."""
        positions = np.flatnonzero(mask[self._rows])
        stretch = np.searchsorted(self._product, positions) - 1
        is_between = (stretch >= 0) & (stretch < len(self._is_closed))
        positions, stretch = positions[is_between], stretch[is_between]
        reductions = np.append(0, np.cumsum(self._kinds.reduction[self._rows]))
        first, last = self._product[stretch], self._product[stretch + 1]
        is_fitting = fits(reductions[positions] - reductions[first], reductions[last] - reductions[positions])
        return np.isin(np.arange(len(self._is_closed)), stretch[is_fitting])

    def _totals(self, values: np.ndarray) -> np.ndarray:
        """By stretch: the sum of `values` (one per row) between its products."""
        before = np.append(0, np.cumsum(values.astype(np.int64)))
        return before[self._product[1:]] - before[self._product[:-1] + 1]


def _passes(scope: Scope) -> np.ndarray:
    """By activity: a number for the range directly in the step in which it was launched (without steps, the outermost
    range), or for its step if there is no such range."""
    forest, ranges = scope.trace.attribution, scope.trace.range_arrays
    is_step = np.zeros(len(ranges) + 1, bool)  # the last entry is for nodes without a parent
    is_step[scope.step_ranges] = True
    outermost = np.full(len(forest.parent) + 1, NONE, np.int32)
    range_of = np.append(forest.range, len(ranges))
    for nodes in forest.levels:
        parent = forest.parent[nodes]
        is_outermost = is_step[range_of[parent]] if scope.has_steps else parent == NONE
        above = outermost[parent]
        outermost[nodes] = np.where(above != NONE, above, np.where(is_outermost, forest.range[nodes], NONE))
    pass_range = outermost[forest.launch_node]  # NONE indexes the last entry
    return np.where(pass_range == NONE, len(ranges) + scope.step_by_activity.astype(np.int32), pass_range)


def _parts(scope: Scope, forward: np.ndarray) -> set[str]:
    """The names of the innermost ranges around chains of the forward pass, without those of phases."""
    tuples = scope.trace.range_paths.tuples
    paths = [tuples[path] for path in np.unique(scope.trace.activity_path[forward]).tolist()]
    return {path[-1] for path in paths if _depth(path, scope) > 1}


def _depth(path: Sequence[str], scope: Scope) -> int:
    return len(path) - (path.index(scope.step_name) + 1 if scope.step_name in path else 0)
