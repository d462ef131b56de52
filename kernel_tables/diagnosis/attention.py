"""Attention as separate kernels, found by its launches: a product, a softmax, a product.

Names of ranges are not used: the same module is called attention, attn or self_attn. On each stream, the products
next to a softmax belong to attention if there is only elementwise work between, and so do the copies around them,
which lay out heads for the products; the projections do not. Both products are launched in one pass of
one step: a softmax between the last product of a forward pass and the first one of its backward pass is a loss's. A
softmax in separate kernels is two reductions with an exponential between. The product that follows takes the output of
the softmax. If the output is reduced first, as in a loss, whose backward pass has the next product, this is not
attention. The backward pass has two products on each side of the softmax; if the softmax is in separate kernels, it is
searched in the ranges of the forward chains.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.scope import Scope

BETWEEN = ("elementwise", "reduction", "random", "softmax", "memcpy", "memset", "other/view", "other/allocation")
# Of cross entropy and of samplers; the last but one template argument of the warp kernels is is_log_softmax.
LOG_SOFTMAX = re.compile(r"(?i)log_?softmax|softmax_warp_\w+<[^<>]*, (?:true|\(bool\)1), (?:true|false|\(bool\)\d)>")
SOFTMAX_BACKWARD = re.compile(r"(?i)softmax\w*_?backward")
EXPONENTIAL = re.compile(r"exp_kernel|aten::exp_?$")
SPLIT_PRODUCT = re.compile(r"(?i)split_?k\w*reduce")  # the second kernel of one product
LINEAR = re.compile(r"aten::(?:linear|addmm)$")  # a layer, not a product of two activations
SHORTEST_NS = 10_000  # of what lies between the products: a softmax over a row of logits is shorter than one over S x S
MOST_COPIES = 4  # on each side of a chain: of queries, keys and values, or of their gradients
MOST_BETWEEN_TWINS = 2  # copies between the two products of one node of the backward pass


@dataclass(frozen=True)
class Attention:
    """By activity: whether it is in a forward chain, whether in a backward chain, and whether it is a product.

    `is_doubtful`: chains are outside of the ranges of a step, and other products inside; they may be those of a loss.
    """

    forward: np.ndarray
    backward: np.ndarray
    is_product: np.ndarray
    is_doubtful: bool = False

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
    """The chains in the scope; `in_backward` is whether a backward pass launched each activity."""
    kinds = _kinds(scope)
    forward, backward = (np.zeros(len(scope.activities), bool) for _ in range(2))
    if not (kinds.softmax | kinds.softmax_backward | kinds.exponential).any():
        return Attention(forward, backward, kinds.product)
    passes = _passes(scope)
    streams = [_Stream(scope, kinds, passes, rows) for device in scope.devices for rows in scope.streams(device)]
    for stream in streams:
        forward[stream.forward()] = True
    outside = passes >= len(scope.trace.range_arrays)
    is_doubtful = bool((forward & outside).any() and (scope.of_class("gemm") & ~outside & ~in_backward).any())
    if is_doubtful:
        forward &= ~outside
    for stream in streams:
        backward[stream.backward(stream.has_softmax_backward)] = True
    if not backward.any() and forward.any():
        parts = _parts(scope, forward)
        candidate = in_backward & scope.within(lambda name: name in parts)
        for stream in streams:
            backward[stream.backward(stream.reduces & stream.only(candidate))] = True
    return Attention(forward, backward, kinds.product, is_doubtful)


def _kinds(scope: Scope) -> _Kinds:
    names = scope.activities.names

    def fits(pattern: re.Pattern) -> np.ndarray:
        return scope.named([bool(pattern.search(name)) for name in names])

    is_log, is_softmax = fits(LOG_SOFTMAX), scope.of_class("softmax", "triton-fused/softmax")
    split, linear = fits(SPLIT_PRODUCT), fits(LINEAR)
    product = scope.of_class("gemm") & ~split & ~linear
    goes_on = scope.of_class(*BETWEEN, "triton-fused/softmax") | scope.is_memory | split
    return _Kinds(
        product,
        is_softmax & ~fits(SOFTMAX_BACKWARD),
        is_softmax & fits(SOFTMAX_BACKWARD),
        scope.of_class("reduction"),
        fits(EXPONENTIAL),
        scope.of_class("other/view", "other/allocation"),
        scope.of_class("elementwise/copy", "other/view", "other/allocation") | scope.is_memory,
        ~(product | goes_on) | is_log,
    )


class _Stream:
    """The stretches between neighbouring products of a stream. An array "by stretch" has one entry for each."""

    def __init__(self, scope: Scope, kinds: _Kinds, passes: np.ndarray, rows: np.ndarray):
        self._rows, self._kinds = rows, kinds
        self._product = np.flatnonzero(kinds.product[rows])
        of_product = passes[rows[self._product]]
        time_ns = np.where(kinds.product[rows], 0, scope.activities.duration_ns[rows])
        self._is_closed = (self._count(kinds.breaks[rows]) == 0) & (self._count(time_ns) >= SHORTEST_NS)
        self._is_closed &= of_product[:-1] == of_product[1:]
        both = self._count(kinds.softmax[rows]), self._count(kinds.softmax_backward[rows])
        self._is_closed &= np.minimum(*both) == 0

    @property
    def reduces(self) -> np.ndarray:
        """By stretch: whether it may be the backward pass of a softmax in separate kernels."""
        kinds, rows = self._kinds, self._rows
        others = ~(kinds.reduction | kinds.view | kinds.product)[rows]
        return self._is_closed & (self._count(kinds.reduction[rows]) > 0) & (self._count(others) > 1)

    @property
    def has_softmax_backward(self) -> np.ndarray:
        """By stretch: whether it holds the backward pass of a softmax."""
        return self._is_closed & (self._count(self._kinds.softmax_backward[self._rows]) > 0)

    def only(self, mask: np.ndarray) -> np.ndarray:
        """By stretch: whether all its activities, with its products, are in `mask` (by activity)."""
        outside = ~mask[self._rows]
        first, last = self._product[:-1], self._product[1:]
        return (self._count(outside) == 0) & ~outside[first] & ~outside[last]

    def forward(self) -> np.ndarray:
        """The activities of the chains of the forward pass."""
        return self._members(self._is_closed & (self._softmax_as_one() | self._softmax_written_out()))

    def backward(self, wanted: np.ndarray) -> np.ndarray:
        """The activities of the backward chains around the `wanted` stretches, with two products on each side."""
        if not wanted.any():
            return self._rows[:0]
        work = ~self._kinds.view[self._rows]
        is_twin = (self._count(self._kinds.breaks[self._rows]) == 0) & (self._count(work) <= MOST_BETWEEN_TWINS)
        before, after = np.append(wanted[1:], False), np.append(False, wanted[:-1])
        return self._members(wanted | (is_twin & (before | after)))

    def _members(self, stretches: np.ndarray) -> np.ndarray:
        """The activities of `stretches`, with the products at their ends and the copies around these."""
        chosen = np.flatnonzero(stretches)
        inside = np.zeros(len(self._rows) + 1, np.int64)
        np.add.at(inside, self._product[chosen], 1)
        np.add.at(inside, self._product[chosen + 1] + 1, -1)
        members, is_copy = np.cumsum(inside)[:-1] > 0, self._kinds.copy[self._rows]
        for _ in range(MOST_COPIES):
            beside = np.append(members[1:], False) | np.append(False, members[:-1])
            members = members | (beside & is_copy)
        return self._rows[members]

    def _softmax_as_one(self) -> np.ndarray:
        """By stretch: whether it holds a kernel of a softmax, and no reduction after it."""
        places, _, last = self._reductions_around(self._kinds.softmax)
        return np.isin(np.arange(max(len(self._product) - 1, 0)), places[last == 0])

    def _softmax_written_out(self) -> np.ndarray:
        """By stretch: whether a reduction, an exponential and one more reduction follow each other in it."""
        places, first, last = self._reductions_around(self._kinds.exponential)
        return np.isin(np.arange(max(len(self._product) - 1, 0)), places[(first > 0) & (last == 1)])

    def _reductions_around(self, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each activity of `mask` between two products: its stretch, and the number of reductions in that before
        and after it."""
        places = np.flatnonzero(mask[self._rows])
        stretch = np.searchsorted(self._product, places) - 1
        inside = (stretch >= 0) & (stretch < len(self._product) - 1)
        places, stretch = places[inside], stretch[inside]
        reductions = np.append(0, np.cumsum(self._kinds.reduction[self._rows]))
        first, last = self._product[stretch], self._product[stretch + 1]
        return stretch, reductions[places] - reductions[first], reductions[last] - reductions[places]

    def _count(self, values: np.ndarray) -> np.ndarray:
        """By stretch: the sum of `values` (one per row) between its products."""
        before = np.append(0, np.cumsum(values.astype(np.int64)))
        return before[self._product[1:]] - before[self._product[:-1] + 1]


def _passes(scope: Scope) -> np.ndarray:
    """By activity: a number for the range directly in the step in which it was launched (without steps, the outermost
    range), or for its step if there is no such range."""
    forest, ranges = scope.trace.attribution, scope.trace.range_arrays
    is_step = np.zeros(len(ranges) + 1, bool)  # the last entry is for nodes without a parent
    is_step[scope.steps] = True
    outermost = np.full(len(forest.parent) + 1, NONE, np.int32)
    range_of = np.append(forest.range, len(ranges))
    for nodes in forest.levels:
        parent = forest.parent[nodes]
        begins = is_step[range_of[parent]] if len(scope.steps) else parent == NONE
        above = outermost[parent]
        outermost[nodes] = np.where(above != NONE, above, np.where(begins, forest.range[nodes], NONE))
    own_range = outermost[forest.launch_node]  # NONE indexes the last entry
    return np.where(own_range == NONE, len(ranges) + scope.step.astype(np.int32), own_range)


def _parts(scope: Scope, forward: np.ndarray) -> set[str]:
    """The names of the innermost ranges around chains of the forward pass, without those of phases."""
    tuples = scope.trace.range_paths.tuples
    paths = [tuples[path] for path in np.unique(scope.trace.activity_path[forward]).tolist()]
    return {path[-1] for path in paths if _depth(path, scope) > 1}


def _depth(path: Sequence[str], scope: Scope) -> int:
    return len(path) - (path.index(scope.step_name) + 1 if scope.step_name in path else 0)
