"""Where the numbers of a run stop being finite: its steps once more, with a look at what every operator returns."""

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cs336_model import ranges
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.process_cost import Progress
from cs336_model.program.spec import RunSpec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from cs336_model.program.variants.effects import process_settings
from cs336_model.program.variants.values import NOT_COMPILED


class FirstNonFinite(TorchDispatchMode):
    """Finds the first operator inside that returns NaN or +infinity, and the ranges that are open then. A mask puts
    -infinity into scores, so that alone tells nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: str | None = None
        self._open: list[str] = []

    def range(self, name: str) -> AbstractContextManager:
        """What a span is meanwhile: it is known to be open."""
        return _Open(self._open, name)

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        if self.found is None and any(_not_finite(one) for one in tree_leaves(result)):
            where = " > ".join(name for name in self._open if name != ranges.STEP)
            self.found = f"{where}, by {operator.name()}"
        return result


class _Open:
    def __init__(self, names: list[str], name: str) -> None:
        self._names, self._name = names, name

    def __enter__(self) -> None:
        self._names.append(self._name)

    def __exit__(self, *error: object) -> None:
        self._names.pop()


def where_not_finite(spec: RunSpec, device: torch.device, steps: int) -> str:
    """In words, where the first number that is not finite is made in so many steps of this run, without compiling it.
    It makes a model of its own, so another should be given up first."""
    plain = replace(spec, dimensions=spec.dimensions | {"compile": NOT_COMPILED})
    try:
        with process_settings(plain):
            subject = make_subject(plain, device)
            for step in range(steps):
                watch = FirstNonFinite()
                ranges.open_with(watch.range)
                with watch:
                    run_steps(subject, 1, PhaseClock(device, f"step {step}", Progress()))
                if watch.found:
                    return f"the first number that is not finite is made in {watch.found}"
    except OutOfMemoryError:
        return "where is not known: there is not memory enough to look"
    return "the steps taken once more, not compiled, are finite but for the loss"


def _not_finite(value: object) -> bool:
    """Whether a tensor holds NaN or +infinity."""
    if not (isinstance(value, Tensor) and value.is_floating_point()) or value.is_meta:
        return False
    return bool((value.isnan() | value.isposinf()).any())
