"""Attention as separate kernels, found by its launches: a product, a softmax, a product.

Names of modules are not used, since attention may be called attention, attn or self_attn. A chain is found like this:

- On each stream, the products next to a softmax belong to attention if there are only elementwise work, reductions,
  random numbers, copies and fills between them. So do the copies around the products, which lay out heads for them. The
  projections do not.
- Both products are launched in one pass of one step. A softmax between the last product of a forward pass and the first
  one of its backward pass is that of a loss.
- A softmax in separate kernels is one or more reductions, an exponential and one reduction. One more reduction before
  the next product means that it is a loss, too.
- The backward pass has two products on each side of the softmax. If the softmax is in separate kernels, its backward
  pass is searched only in the ranges of the forward chains.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernel_tables.attribution.ranges import NONE
from kernel_tables.diagnosis.scope import Scope

INNER_CLASSES = (  # classes of what may lie between the products
    "elementwise", "reduction", "random", "softmax", "triton-fused/softmax", "memcpy", "memset", "other/view",
    "other/allocation",
)  # fmt: skip
# Log softmax occurs in cross entropy and samplers. is_log_softmax is the last template argument but one of PyTorch's
# softmax_warp kernels.
LOG_SOFTMAX = re.compile(r"(?i)log_?softmax|softmax_warp_\w+<[^<>]*, (?:true|\(bool\)1), (?:true|false|\(bool\)\d)>")
SOFTMAX_BACKWARD = re.compile(r"(?i)softmax\w*_?backward")
EXPONENTIAL = re.compile(r"exp_kernel|aten::exp_?$")
SPLIT_PRODUCT = re.compile(r"(?i)split_?k\w*reduce")  # the second kernel of one product
LINEAR = re.compile(r"aten::(?:linear|addmm)$")  # a layer, not a product of two activations
MIN_BETWEEN_NS = 10_000  # least time between the products; a softmax over one row of logits takes less
MAX_COPIES = 4  # on each side of a chain: of queries, keys and values, or of their gradients
# In the backward pass, each product becomes two (twins), the gradients of its two operands.
MAX_BETWEEN_TWINS = 2  # activities between twins, views not counted


@dataclass(frozen=True)
class Attention:
    """The chains of attention, as masks by activity."""

    forward: np.ndarray  # the chains of the forward pass, with their products
    backward: np.ndarray  # the chains of the backward pass, likewise
    is_product: np.ndarray  # all products, also those in no chain
    # Chains were found outside of a step's ranges, but products inside of them: such chains may be a loss, and
    # `forward` lacks them.
    is_doubtful: bool = False

    @property
    def chains(self) -> np.ndarray:
        return self.forward | self.backward


@dataclass(frozen=True)
class _Roles:
    """By activity: whether it may have this role in a chain. Activities of the role `breaks` are in no chain."""

    product: np.ndarray
    softmax: np.ndarray
    softmax_backward: np.ndarray
    reduction: np.ndarray
    exponential: np.ndarray
    view: np.ndarray
    copy: np.ndarray
    breaks: np.ndarray


def attention_of(scope: Scope, in_backward: np.ndarray) -> Attention:
    """The chains of attention. `in_backward` is a mask by activity: what a backward pass launched."""
    roles = _roles(scope)
    forward, backward = (np.zeros(len(scope.activities), bool) for _ in range(2))
    if not (roles.softmax | roles.softmax_backward | roles.exponential).any():
        return Attention(forward, backward, roles.product)
    passes = _passes(scope)
    streams = [_Stream(scope, roles, passes, rows) for device in scope.devices for rows in scope.streams(device)]
    for stream in streams:
        forward[stream.forward()] = True
    in_no_phase = passes >= len(scope.trace.range_arrays)  # as _passes numbers them
    has_products = scope.is_of_class("gemm") & ~in_no_phase & ~in_backward
    is_doubtful = bool((forward & in_no_phase).any() and has_products.any())
    if is_doubtful:
        forward &= ~in_no_phase
    for stream in streams:
        backward[stream.backward(stream.has_softmax_backward)] = True
    if not backward.any() and forward.any():  # the softmax may be in separate kernels
        modules = _modules(scope, forward)
        is_candidate = in_backward & scope.is_in_range(lambda name: name in modules)
        for stream in streams:
            backward[stream.backward(stream.may_be_softmax_backward & stream.is_within(is_candidate))] = True
    return Attention(forward, backward, roles.product, is_doubtful)


def _roles(scope: Scope) -> _Roles:
    names = scope.activities.names

    def is_named(pattern: re.Pattern) -> np.ndarray:
        return scope.with_names([bool(pattern.search(name)) for name in names])

    is_split, is_softmax = is_named(SPLIT_PRODUCT), scope.is_of_class("softmax", "triton-fused/softmax")
    is_view = scope.is_of_class("other/view", "other/allocation")
    is_product = scope.is_of_class("gemm") & ~is_split & ~is_named(LINEAR)
    is_inner = scope.is_of_class(*INNER_CLASSES) | scope.is_memory | is_split
    return _Roles(
        product=is_product,
        softmax=is_softmax & ~is_named(SOFTMAX_BACKWARD),
        softmax_backward=is_softmax & is_named(SOFTMAX_BACKWARD),
        reduction=scope.is_of_class("reduction"),
        exponential=is_named(EXPONENTIAL),
        view=is_view,
        copy=scope.is_of_class("elementwise/copy") | is_view | scope.is_memory,
        breaks=~(is_product | is_inner) | is_named(LOG_SOFTMAX),
    )


class _Stream:
    """The stretches between neighbouring products of a stream, whose activities are `rows`, in order of time. An array
    "by stretch" has one entry for each."""

    def __init__(self, scope: Scope, roles: _Roles, passes: np.ndarray, rows: np.ndarray):
        self._rows, self._roles = rows, roles
        self._product = np.flatnonzero(roles.product[rows])  # positions in `rows`
        product_pass = passes[rows[self._product]]
        time_ns = np.where(roles.product[rows], 0, scope.activities.duration_ns[rows])
        has_forward = self._totals(roles.softmax[rows]) > 0
        has_backward = self._totals(roles.softmax_backward[rows]) > 0
        self._may_hold_softmax = (self._totals(roles.breaks[rows]) == 0) & (self._totals(time_ns) >= MIN_BETWEEN_NS)
        self._may_hold_softmax &= product_pass[:-1] == product_pass[1:]
        self._may_hold_softmax &= ~(has_forward & has_backward)  # both: between the passes

    @property
    def may_be_softmax_backward(self) -> np.ndarray:
        """By stretch: whether it may be the backward pass of a softmax in separate kernels."""
        roles, rows = self._roles, self._rows
        others = ~(roles.reduction | roles.view | roles.product)[rows]
        return self._may_hold_softmax & (self._totals(roles.reduction[rows]) > 0) & (self._totals(others) > 1)

    @property
    def has_softmax_backward(self) -> np.ndarray:
        """By stretch: whether it holds a kernel for the backward pass of a softmax."""
        return self._may_hold_softmax & (self._totals(self._roles.softmax_backward[self._rows]) > 0)

    def is_within(self, mask: np.ndarray) -> np.ndarray:
        """By stretch: whether all its activities, and the products at its ends, are in `mask` (by activity)."""
        outside = ~mask[self._rows]
        first, last = self._product[:-1], self._product[1:]
        return (self._totals(outside) == 0) & ~outside[first] & ~outside[last]

    def forward(self) -> np.ndarray:
        """The activities of the chains of the forward pass: a softmax that no reduction follows, or an exponential with
        reductions before and one after it."""
        as_one = self._has_activity(self._roles.softmax, lambda before, after: after == 0)
        written_out = self._has_activity(self._roles.exponential, lambda before, after: (before > 0) & (after == 1))
        return self._members(self._may_hold_softmax & (as_one | written_out))

    def backward(self, is_softmax: np.ndarray) -> np.ndarray:
        """The activities of the backward chains around the stretches that hold the backward pass of a softmax
        (`is_softmax`, by stretch), with up to two products on each side."""
        if not is_softmax.any():
            return self._rows[:0]
        is_work = ~self._roles.view[self._rows]
        is_twin = (self._totals(self._roles.breaks[self._rows]) == 0) & (self._totals(is_work) <= MAX_BETWEEN_TWINS)
        return self._members(is_softmax | (is_twin & _is_beside(is_softmax)))

    def _members(self, stretches: np.ndarray) -> np.ndarray:
        """The activities of `stretches`, with the products at their ends and the copies around these."""
        chosen = np.flatnonzero(stretches)
        begun_or_ended = np.zeros(len(self._rows) + 1, np.int64)  # how many more stretches an activity is in
        np.add.at(begun_or_ended, self._product[chosen], 1)
        np.add.at(begun_or_ended, self._product[chosen + 1] + 1, -1)
        members, is_copy = np.cumsum(begun_or_ended)[:-1] > 0, self._roles.copy[self._rows]
        for _ in range(MAX_COPIES):  # each round adds a copy on each side
            members = members | (_is_beside(members) & is_copy)
        return self._rows[members]

    def _has_activity(self, mask: np.ndarray, fits: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
        """By stretch: whether it has an activity of `mask` such that `fits` is true for the numbers of reductions that
        the stretch has before and after it."""
        positions = np.flatnonzero(mask[self._rows])
        stretch = np.searchsorted(self._product, positions) - 1
        is_between = (stretch >= 0) & (stretch < len(self._may_hold_softmax))
        positions, stretch = positions[is_between], stretch[is_between]
        reductions = np.append(0, np.cumsum(self._roles.reduction[self._rows]))
        first, last = self._product[stretch], self._product[stretch + 1]
        is_fitting = fits(reductions[positions] - reductions[first], reductions[last] - reductions[positions])
        return np.isin(np.arange(len(self._may_hold_softmax)), stretch[is_fitting])

    def _totals(self, values: np.ndarray) -> np.ndarray:
        """By stretch: the sum of `values` (one per row) between its products."""
        before = np.append(0, np.cumsum(values.astype(np.int64)))
        return before[self._product[1:]] - before[self._product[:-1] + 1]


def _is_beside(mask: np.ndarray) -> np.ndarray:
    """By entry: whether the one before or after it is True."""
    return np.append(mask[1:], False) | np.append(False, mask[:-1])


def _passes(scope: Scope) -> np.ndarray:
    """By activity: the pass in which it was launched, as the index of the range directly inside its step (without
    steps, of the outermost range). If it was in no such range: the number of all ranges plus the index of its step."""
    forest, ranges = scope.trace.attribution, scope.trace.range_arrays
    is_step = np.zeros(len(ranges) + 1, bool)  # by range; the last entry is for nodes without a parent
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


def _modules(scope: Scope, forward: np.ndarray) -> set[str]:
    """The names of the innermost ranges around chains of the forward pass (`forward`), except phases: their depth in
    the step is 1."""
    tuples = scope.trace.range_paths.tuples
    paths = [tuples[path] for path in np.unique(scope.trace.activity_path[forward]).tolist()]
    return {path[-1] for path in paths if _depth(path, scope) > 1}


def _depth(path: Sequence[str], scope: Scope) -> int:
    """The number of ranges of the path that are inside the step; of all if the path has no step."""
    return len(path) - (path.index(scope.step_name) + 1 if scope.step_name in path else 0)
