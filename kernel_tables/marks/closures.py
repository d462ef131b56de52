"""The range of an optimizer's step without its closure: forward pass, backward pass and optimizer are siblings.

PyTorch opens a range around `optimizer.step(closure)`. LBFGS needs a closure, and PyTorch Lightning always passes one.
Then forward and backward pass run inside that call, and their kernels would count as the optimizer's. So the range is
closed while the closure runs. It has one instance before each call of the closure, and one after the last.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from range_marks.uncompiled import uncompiled, uncompiled_wrapper


class Closures:
    """Closes the optimizer's range around the closures of all optimizers of this process."""

    def __init__(self, outside_optimizer: Callable[[], AbstractContextManager]) -> None:
        """`outside_optimizer` makes a context in which the range of the calling thread's optimizer step is closed."""
        self._outside_optimizer = outside_optimizer
        self._hook: RemovableHandle | None = None
        self._is_on = False

    def attach(self) -> None:
        """Sets the hook that finds closures. Call this before optimizers are compiled, and `detach` after their last
        use: torch.compile compiles an optimizer again if its hooks change."""
        self._hook = register_optimizer_step_pre_hook(self._before_step)

    def begin(self) -> None:
        """Closes ranges from now on."""
        self._is_on = True

    def end(self) -> None:
        """Stops closing ranges."""
        self._is_on = False

    def detach(self) -> None:
        """Removes the hook."""
        if self._hook is not None:
            self._hook.remove()

    @uncompiled
    def _before_step(self, _: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
        """The hook returns new arguments of the step, with a wrapped closure, or None. args[0] is the optimizer."""
        if torch.compiler.is_compiling() or not self._is_on:
            return None
        if callable(kwargs.get("closure")):
            return args, kwargs | {"closure": self._wrapped(kwargs["closure"])}
        if len(args) > 1 and callable(args[1]):
            return (args[0], self._wrapped(args[1]), *args[2:]), kwargs
        return None

    def _wrapped(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """The closure, called outside the optimizer's range."""

        @wraps(closure)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with self._outside_optimizer():
                return closure(*args, **kwargs)

        return uncompiled_wrapper(wrapper)
