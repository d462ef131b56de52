r"""Attention as separate kernels, found by its launches: a product, a softmax, a product.

Names of modules are not used, since attention may be called attention, attn or self_attn. The activities of a stream
are a text with a letter for each: P is a product, S a softmax, B the backward pass of one, R a reduction, E an
exponential, v a view, c a copy or fill, o other elementwise work or random numbers, and x is what is in no chain, as
layers, fused attention and log softmax.

- Two products with a softmax between them are attention if no x is there. So are the copies around them, which lay out
  heads. Both products are launched in one pass of one step: a softmax between the last product of a forward pass and
  the first one of its backward pass is that of a loss.
- A softmax in separate kernels is one or more R, an E and one R. One more R before the next P means that it is a loss.
- The backward pass has two products on each side of the softmax, since each product becomes two, the gradients of its
  operands. If the softmax is in separate kernels, its backward pass is searched only in the ranges of forward chains.
"""

import re
from collections.abc import Callable

import numpy as np

from kernel_tables.capture import NONE
from kernel_tables.steps import Scope


class Attention:
    """The chains of attention. Every mask is by activity."""

    def __init__(self, scope: Scope, in_backward: np.ndarray):
        """`in_backward` is a mask by activity: what a backward pass launched."""
        self.scope, self.letters, self.passes = scope, _letters(scope), self._passes(scope)
        self.is_product = self.letters == b"P"  # also those in no chain

        def is_softmax(between: str) -> bool:
            parts = between.rsplit("R", 2)
            return "S" in parts[-1] or (len(parts) == 3 and "E" in parts[1])

        self.forward = self._chains("[SE]", is_softmax)  # of the forward pass, with their products
        in_no_phase = self.passes >= len(scope.ranges)  # as _passes numbers them
        has_products = (scope.is_of_class("gemm") & ~in_no_phase & ~in_backward).any()
        if has_products and (self.forward & in_no_phase).any():
            self.forward &= ~in_no_phase  # outside of a step's ranges, with products inside of them: maybe a loss
        self.backward = self._chains("B", lambda between: True, has_twins=True)  # of the backward pass, likewise
        if self.forward.any() and not self.backward.any():  # the softmax may be in separate kernels
            modules = self._modules()
            is_inside = in_backward & scope.is_in_range(lambda name: name in modules)
            self.backward = self._chains(
                "R", lambda between: len(re.sub("[Rv]", "", between)) > 1, is_inside, has_twins=True
            )

    @staticmethod
    def _passes(scope: Scope) -> np.ndarray:
        """By activity: the pass in which it was launched, as the number of the range directly inside its step (without
        steps, of the outermost range). If it was in no such range: the number of all ranges plus that of its step."""
        found, count = scope.profile.attribution, len(scope.ranges)
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

    def _chains(
        self, letters: str, fits: Callable[[str], bool], is_inside: np.ndarray | None = None, has_twins: bool = False
    ) -> np.ndarray:
        """The activities of chains: of two neighbouring products (both, and all between them, in `is_inside`), if one
        of `letters` is between them, and `fits` is true for the text between them; with the copies around these, and
        with `has_twins`, one more product on each side."""
        scope, members = self.scope, np.zeros(len(self.letters), bool)
        least_ns = 10_000  # between the products; a softmax over one row of logits takes less
        most_copies = 4  # on each side: of queries, keys and values, or of their gradients
        twin = re.compile("(?:v*[^Pxv]){0,2}v*")  # what may be between a product and its twin
        for rows in scope.streams:
            text = searched = self.letters[rows].tobytes().decode()
            if is_inside is not None:
                searched = np.where(is_inside[rows], self.letters[rows], b"x").tobytes().decode()
            for match in re.finditer(f"P([^Px]*{letters}[^Px]*)(?=P)", searched):
                first, last, between = match.start(), match.end(), match[1]
                is_between_passes = "S" in between and "B" in between
                is_of_one_pass = self.passes[rows[first]] == self.passes[rows[last]]
                took_ns = scope.duration_ns[rows[first + 1 : last]].sum()
                if is_between_passes or not is_of_one_pass or took_ns < least_ns or not fits(between):
                    continue
                before, after = text.rfind("P", 0, first), text.find("P", last + 1)
                if has_twins and before >= 0 and twin.fullmatch(text, before + 1, first):
                    first = before
                if has_twins and after >= 0 and twin.fullmatch(text, last + 1, after):
                    last = after
                head, tail = text[max(first - most_copies, 0) : first], text[last + 1 : last + 1 + most_copies]
                first -= len(head) - len(head.rstrip("cv"))
                last += len(tail) - len(tail.lstrip("cv"))
                members[rows[first : last + 1]] = True
        return members


def _letters(scope: Scope) -> np.ndarray:
    """The letter of each activity."""

    def is_named(pattern: str) -> np.ndarray:
        return scope.is_named(re.compile(pattern).search)

    is_softmax = scope.is_of_class("softmax", "triton-fused/softmax")
    is_split = is_named(r"(?i)split_?k\w*reduce")  # the second kernel of one product
    is_layer = is_named(r"aten::(?:linear|addmm)$")  # not a product of two activations
    is_elementwise, letters = scope.is_of_class("elementwise", "random"), np.full(len(scope.activities), b"x")
    for letter, mask in (  # later ones override
        (b"o", is_elementwise | is_split),
        (b"c", scope.is_of_class("elementwise/copy") | scope.is_memory),
        (b"v", scope.is_of_class("other/view", "other/allocation")),
        (b"R", scope.is_of_class("reduction")),
        (b"E", is_named(r"exp_kernel|aten::exp_?$") & is_elementwise),
        (b"S", is_softmax),
        (b"B", is_softmax & is_named(r"(?i)softmax\w*_?backward")),
        (b"P", scope.is_of_class("gemm") & ~is_split & ~is_layer),
        # In cross entropy and samplers. is_log_softmax is the last template argument but one of PyTorch's softmax_warp.
        (b"x", is_named(r"(?i)log_?softmax|softmax_warp_\w+<[^<>]*, (?:true|\(bool\)1), (?:true|false|\(bool\)\d)>")),
    ):
        letters[mask] = letter
    return letters
