"""Functions of PyTorch whose calls are heard."""

from collections.abc import Callable
from functools import wraps
from typing import Any


def _nothing(*_: Any) -> None: ...


def heard(
    plain: Callable[..., Any], *, before: Callable[..., object] = _nothing, after: Callable[..., object] = _nothing
) -> Callable[..., Any]:
    """The function. `before` gets its positional arguments first, and `after` once it has returned."""

    @wraps(plain)
    def called(*args: Any, **kwargs: Any) -> Any:
        before(*args)
        result = plain(*args, **kwargs)
        after(*args)
        return result

    return called
