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

import numpy as np

from kernel_tables.capture import NONE
from kernel_tables.steps import Scope


class Attention:
    """The chains of attention. Every mask is by activity."""

    def __init__(self, scope: Scope, in_backward: np.ndarray):
        """`in_backward` is a mask by activity: what a backward pass launched."""
        self.scope, self.roles = scope, _roles(scope)
        self.is_product = self.roles["product"]  # also those in no chain
        self.forward = np.zeros(len(scope.activities), bool)  # the chains of the forward pass, with their products
        self.backward = self.forward.copy()  # the chains of the backward pass, likewise
        # Chains were found outside of a step's ranges, but products inside of them: such chains may be a loss, and
        # `forward` lacks them.
        self.is_doubtful = False
        if any(self.roles[role].any() for role in ("softmax", "softmax_backward", "exponential")):
            self._search(in_backward)

    def _search(self, in_backward: np.ndarray) -> None:
        scope, passes = self.scope, self._passes()
        streams = [
            _Stream(scope, self.roles, passes, rows) for device in scope.devices for rows in scope.streams(device)
        ]
        for stream in streams:
            self.forward[stream.forward()] = True
        in_no_phase = passes >= len(scope.ranges)  # as _passes numbers them
        has_products = (scope.is_of_class("gemm") & ~in_no_phase & ~in_backward).any()
        self.is_doubtful = bool(has_products and (self.forward & in_no_phase).any())
        if self.is_doubtful:
            self.forward &= ~in_no_phase
        for stream in streams:
            self.backward[stream.backward(stream.count("softmax_backward") > 0)] = True
        if self.backward.any() or not self.forward.any():
            return
        modules = self._modules()  # the softmax may be in separate kernels
        is_outside = ~(in_backward & scope.is_in_range(lambda name: name in modules))
        for stream in streams:
            begins_or_ends_outside = is_outside[stream.rows[stream.product]]
            is_inside = stream.totals(is_outside[stream.rows]) == 0
            is_inside &= ~begins_or_ends_outside[:-1] & ~begins_or_ends_outside[1:]
            is_softmax = (stream.count("reduction") > 0) & (stream.count("neither") > 1) & is_inside
            self.backward[stream.backward(is_softmax)] = True

    def _passes(self) -> np.ndarray:
        """By activity: the pass in which it was launched, as the number of the range directly inside its step (without
        steps, of the outermost range). If it was in no such range: the number of all ranges plus that of its step."""
        scope, found, count = self.scope, self.scope.profile.attribution, len(self.scope.ranges)
        is_step = np.zeros(count + 1, bool)  # by range; the last entry is for ranges in no other
        is_step[scope.step_ranges] = True
        is_pass = is_step[np.append(found.range, count)[found.parent[:count]]] | (not scope.has_steps)
        pass_range = found.enclosing(is_pass)
        return np.where(pass_range == NONE, count + scope.step_by_activity, pass_range)

    def _modules(self) -> set[str]:
        """The names of the innermost ranges around chains of the forward pass, except phases: these are directly inside
        the step (without a step, outermost)."""
        profile, step = self.scope.profile, self.scope.step_name
        paths = [profile.paths[path] for path in np.unique(profile.attribution.path[self.forward]).tolist()]
        return {path[-1] for path in paths if len(path) - (path.index(step) + 1 if step in path else 0) > 1}


def _roles(scope: Scope) -> dict[str, np.ndarray]:
    """The activities that may have each role in a chain. Those of the role "breaks" are in no chain."""

    def is_named(pattern: str) -> np.ndarray:
        return scope.with_names([bool(re.search(pattern, name)) for name in scope.activities.names])

    is_softmax, is_view = (
        scope.is_of_class(*classes)
        for classes in (("softmax", "triton-fused/softmax"), ("other/view", "other/allocation"))
    )
    is_backward, is_reduction = is_named(r"(?i)softmax\w*_?backward"), scope.is_of_class("reduction")
    is_split = is_named(r"(?i)split_?k\w*reduce")  # the second kernel of one product
    is_layer = is_named(r"aten::(?:linear|addmm)$")  # not a product of two activations
    is_product = scope.is_of_class("gemm") & ~is_split & ~is_layer
    inner = ("elementwise", "reduction", "random", "softmax", "triton-fused/softmax", "memcpy", "memset")
    is_inner = scope.is_of_class(*inner) | is_view | scope.is_memory | is_split
    # Log softmax occurs in cross entropy and samplers. is_log_softmax is the last template argument but one of PyTorch's
    # softmax_warp kernels.
    log_softmax = r"(?i)log_?softmax|softmax_warp_\w+<[^<>]*, (?:true|\(bool\)1), (?:true|false|\(bool\)\d)>"
    return {
        "product": is_product,
        "softmax": is_softmax & ~is_backward,
        "softmax_backward": is_softmax & is_backward,
        "reduction": is_reduction,
        "exponential": is_named(r"exp_kernel|aten::exp_?$"),
        "neither": ~(is_reduction | is_view | is_product),
        "work": ~is_view,
        "copy": scope.is_of_class("elementwise/copy") | is_view | scope.is_memory,
        "breaks": ~(is_product | is_inner) | is_named(log_softmax),
    }


class _Stream:
    """The stretches between neighbouring products of a stream, whose activities are `rows`, in order of time. What the
    methods return and take has one entry for each stretch, unless said otherwise."""

    def __init__(self, scope: Scope, roles: dict[str, np.ndarray], passes: np.ndarray, rows: np.ndarray):
        self.rows, self.roles = rows, {role: mask[rows] for role, mask in roles.items()}
        self.product = np.flatnonzero(self.roles["product"])  # positions in `rows`
        passes = passes[rows[self.product]]
        least_ns = 10_000  # between the products; a softmax over one row of logits takes less
        may_hold = (self.count("breaks") == 0) & (self.totals(scope.duration_ns[rows]) >= least_ns)
        may_hold &= passes[:-1] == passes[1:]
        # Both: between the passes.
        self.may_hold_softmax = may_hold & ~((self.count("softmax") > 0) & (self.count("softmax_backward") > 0))

    def totals(self, values: np.ndarray) -> np.ndarray:
        """The sum of `values` (one per row) between the products."""
        before = np.append(0, np.cumsum(values.astype(np.int64)))
        return before[self.product[1:]] - before[self.product[:-1] + 1]

    def count(self, role: str) -> np.ndarray:
        """How many activities have this role."""
        return self.totals(self.roles[role])

    def forward(self) -> np.ndarray:
        """The activities of the chains of the forward pass: a softmax that no reduction follows, or an exponential with
        reductions before and one after it."""
        is_chain = np.zeros(len(self.may_hold_softmax), bool)
        reductions = np.append(0, np.cumsum(self.roles["reduction"]))
        for role in ("softmax", "exponential"):
            position = np.flatnonzero(self.roles[role])
            stretch = np.searchsorted(self.product, position) - 1
            is_between = (stretch >= 0) & (stretch < len(is_chain))
            position, stretch = position[is_between], stretch[is_between]
            before = reductions[position] - reductions[self.product[stretch]]
            after = reductions[self.product[stretch + 1]] - reductions[position]
            is_chain[stretch[after == 0 if role == "softmax" else (before > 0) & (after == 1)]] = True
        return self._members(is_chain & self.may_hold_softmax)

    def backward(self, is_softmax: np.ndarray) -> np.ndarray:
        """The activities of the backward chains around the stretches that may hold the backward pass of a softmax
        (`is_softmax`), with up to two products on each side."""
        is_softmax = is_softmax & self.may_hold_softmax
        # In the backward pass, each product becomes two (twins), the gradients of its two operands.
        most_between_twins = 2
        is_twin = (self.count("breaks") == 0) & (self.count("work") <= most_between_twins)
        return self._members(is_softmax | (is_twin & _is_beside(is_softmax)))

    def _members(self, stretches: np.ndarray) -> np.ndarray:
        """The activities of `stretches`, with the products at their ends and the copies around these."""
        chosen, copies = (
            np.flatnonzero(stretches),
            4,
        )  # on each side: of queries, keys and values, or of their gradients
        begun_or_ended = np.zeros(len(self.rows) + 1, np.int64)  # how many more stretches an activity is in
        np.add.at(begun_or_ended, self.product[chosen], 1)
        np.add.at(begun_or_ended, self.product[chosen + 1] + 1, -1)
        members = np.cumsum(begun_or_ended)[:-1] > 0
        for _ in range(copies):
            members = members | (_is_beside(members) & self.roles["copy"])
        return self.rows[members]


def _is_beside(mask: np.ndarray) -> np.ndarray:
    """By entry: whether the one before or after it is True."""
    return np.append(mask[1:], False) | np.append(False, mask[:-1])
