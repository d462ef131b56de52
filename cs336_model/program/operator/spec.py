"""The specification of a run of attention alone: JSON from the grid, checked. Imports no torch."""

import math
from dataclasses import dataclass
from typing import Any

from cs336_model.program.spec import DEVICES, check_choice, check_count, check_keys, read_fields
from cs336_model.program.variants.values import ATTENTIONS, COMPILES, EAGER, NOT_COMPILED, PRECISIONS, WHOLE_MODEL

KNOWN_DIMENSIONS = ("precision", "batch_size", "compile", "attention", "head_dim")


@dataclass(frozen=True)
class RowSpec:
    """One run of attention alone, called a row: one setting at several context lengths, each of which is a cell. It has
    the value of every dimension by its key, the context lengths, the passes at each length, and the seconds for which
    single calls are timed (0: none are). The attention may be a function of the user, as "module:function"."""

    run: str
    dimensions: dict[str, Any]
    context_lengths: list[int]
    warmup_passes: int
    measured_passes: int
    bench_s: float
    seed: int
    device: str

    @property
    def targets(self) -> tuple[str, ...]:
        """Every "module:name" in the specification."""
        return tuple(filter(is_own, [self.dimensions["attention"]]))


def is_own(attention: str) -> bool:
    """Whether this is a function of the user, as "module:function"."""
    return ":" in attention


def read_row(text: str) -> RowSpec:
    """The run that a JSON object describes. Raises ValueError with the key that is unknown, missing or out of its
    range, or with the reason why no machine can measure these values together."""
    spec = read_fields(text, RowSpec)
    check_keys("dimensions of the specification", spec.dimensions, KNOWN_DIMENSIONS)
    for name, choices in (("precision", PRECISIONS), ("compile", COMPILES)):
        check_choice(name, spec.dimensions[name], choices)
    if not is_own(spec.dimensions["attention"]):
        check_choice("attention", spec.dimensions["attention"], ATTENTIONS)
    check_choice("device", spec.device, DEVICES)
    counts = {name: spec.dimensions[name] for name in ("batch_size", "head_dim")}
    counts |= {"measured_passes": spec.measured_passes, "context_lengths": min(spec.context_lengths, default=0)}
    for name, value in counts.items():
        check_count(name, value, minimum=1)
    check_count("warmup_passes", spec.warmup_passes, minimum=0)
    if isinstance(spec.bench_s, bool) or not isinstance(spec.bench_s, int | float) or not 0 <= spec.bench_s < math.inf:
        raise ValueError(f"specification: bench_s is {spec.bench_s!r}; it must be a number, 0 or more")
    if reason := row_impossibility(spec.dimensions):
        raise ValueError(f"specification: {reason}")
    return spec


def row_impossibility(dimensions: dict[str, Any]) -> str | None:
    """Why no machine can measure this run, in one line; None if it is possible, or only a machine knows."""
    compilation, attention = dimensions["compile"], dimensions["attention"]
    if compilation not in (NOT_COMPILED, WHOLE_MODEL):
        return f"compile {compilation}: only attention runs here, so choose off or on"
    if compilation != NOT_COMPILED and attention != EAGER:
        return f"compile {compilation} with attention {attention}: a fused kernel is not compiled; list {EAGER}"
    return None
