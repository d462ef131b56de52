"""Where the numbers of a run stop being finite: its steps again, with a check of the result of every operator."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from cs336_model import ranges
from cs336_model.program.out_of_memory import OutOfMemoryError
from cs336_model.program.process import Progress
from cs336_model.program.spec import RunSpec
from cs336_model.program.steps import PhaseClock, make_subject, run_steps
from cs336_model.program.variants.effects import process_settings
from cs336_model.program.variants.values import NOT_COMPILED


class FirstNonFinite(TorchDispatchMode):
    """Finds the first operator that returns NaN or +infinity, and the ranges that are open then. -infinity does not
    count, since a mask puts it into scores."""

    def __init__(self) -> None:
        super().__init__()
        self.location: str | None = None
        self._open: list[str] = []

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Stands in for a range: notes that it is open."""
        self._open.append(name)
        try:
            yield
        finally:
            self._open.pop()

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        if self.location is None and any(map(_not_finite, tree_leaves(result))):
            where = " > ".join(name for name in self._open if name != ranges.STEP)
            self.location = f"{where}, by {operator.name()}"
        return result


def where_not_finite(spec: RunSpec, device: torch.device, steps: int) -> str:
    """Where, in words, the first non-finite number appears in the given number of steps of this run, without compiling.
    Makes a new model, so free an existing one first."""
    plain = replace(spec, dimensions=spec.dimensions | {"compile": NOT_COMPILED})
    try:
        with process_settings(plain):
            subject = make_subject(plain, device)
            for step in range(steps):
                watch = FirstNonFinite()
                ranges.open_spans_with(watch.range)
                with watch:
                    run_steps(subject, 1, PhaseClock(device, f"step {step}", Progress()))
                if watch.location:
                    return f"the first number that is not finite appears in {watch.location}"
    except OutOfMemoryError:
        return "where is unknown: there is not enough memory to search"
    return "when the steps are repeated without compiling, no operator returns NaN or infinity"


def _not_finite(value: object) -> bool:
    """Whether a tensor holds NaN or +infinity."""
    if not (isinstance(value, Tensor) and value.is_floating_point()) or value.is_meta:
        return False
    return bool((value.isnan() | value.isposinf()).any())
