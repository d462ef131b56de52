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
    """Finds the first operator that returns NaN or +infinity, and notes the ranges that are open then (`location`).
    -infinity does not count, since a mask puts it into scores."""

    def __init__(self) -> None:
        super().__init__()
        self.location: str | None = None
        self._open_ranges: list[str] = []

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Stands in for a range: notes that it is open."""
        self._open_ranges.append(name)
        try:
            yield
        finally:
            self._open_ranges.pop()

    def __torch_dispatch__(self, operator: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        if self.location is None and any(map(_has_non_finite, tree_leaves(result))):
            path = " > ".join(name for name in self._open_ranges if name != ranges.STEP)
            self.location = f"{path}, by {operator.name()}"
        return result


def where_not_finite(spec: RunSpec, device: torch.device, steps: int) -> str:
    """A sentence that says where the first non-finite number appears in the first `steps` steps of this run, repeated
    without compiling. Makes a new model, so free an existing one first."""
    eager_spec = replace(spec, dimensions=spec.dimensions | {"compile": NOT_COMPILED})
    try:
        with process_settings(eager_spec):
            subject = make_subject(eager_spec, device)
            for step in range(steps):
                first_non_finite = FirstNonFinite()
                ranges.open_spans_with(first_non_finite.range)
                with first_non_finite:
                    run_steps(subject, 1, PhaseClock(device, f"step {step}", Progress()))
                if first_non_finite.location:
                    return f"the first number that is not finite appears in {first_non_finite.location}"
    except OutOfMemoryError:
        return "where is unknown: there is not enough memory to search"
    return "when the steps are repeated without compiling, no operator returns NaN or +infinity"


def _has_non_finite(value: object) -> bool:
    """Whether a tensor holds NaN or +infinity."""
    if not (isinstance(value, Tensor) and value.is_floating_point()) or value.is_meta:
        return False
    return bool((value.isnan() | value.isposinf()).any())
