"""Functions of PyTorch with calls before and after them."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def _nothing(*_: Any) -> None: ...


def with_callbacks(
    original: Callable[..., Any], *, before: Callable[..., object] = _nothing, after: Callable[..., object] = _nothing
) -> Callable[..., Any]:
    """The function with `before` called first, and `after` once it has returned, both with its positional arguments."""

    @wraps(original)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = original(*args, **kwargs)
        after(*args)
        return result

    return wrapper
