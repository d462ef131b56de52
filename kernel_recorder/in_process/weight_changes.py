"""Steps of optimizers that run no Python, as compiled ones do: known by the weights that they change."""

import weakref
from collections.abc import Iterator
from contextlib import suppress

from torch.optim.optimizer import Optimizer


class WeightChanges:
    """The optimizers of a program, and the versions of their weights. True if there are any."""

    def __init__(self) -> None:
        self._versions: list[tuple[weakref.ref[Optimizer], int]] | None = []
        self._has_any = False

    def __bool__(self) -> bool:
        return self._has_any

    def add(self, optimizer: Optimizer) -> None:
        """Watches the weights of this optimizer too."""
        self._has_any = True
        if self._versions is not None:
            self._versions.append((weakref.ref(optimizer), _version(optimizer)))

    def stop(self) -> None:
        """Watches no more, since steps can be heard."""
        self._versions = None

    def changed(self) -> Iterator[Optimizer]:
        """The optimizers whose weights were written to since the last time."""
        for place, (reference, before) in enumerate(self._versions or ()):
            optimizer = reference()
            if optimizer is not None and (version := _version(optimizer)) != before:
                self._versions[place] = reference, version
                yield optimizer


def _version(optimizer: Optimizer) -> int:
    """A number that grows when a weight of this optimizer is written to, as PyTorch counts it for autograd."""
    version = 0
    with suppress(Exception):  # weights made in inference mode, and classes of the program's own, may have no version
        for group in optimizer.param_groups:
            version += sum(weight._version for weight in group["params"])
    return version
