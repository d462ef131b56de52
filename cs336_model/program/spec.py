"""What one run measures: the JSON that the grid writes, checked before anything slow starts. Imports no torch."""

import json
from dataclasses import dataclass, fields
from typing import Any

from cs336_model.ranges import PHASES_OF_MODE

PRECISIONS = ("fp32", "bf16")
DEVICES = ("auto", "cuda", "cpu")


@dataclass(frozen=True)
class RunSpec:
    """One configuration of the grid. `annotate` maps a range name to the "module:function" that becomes that range."""

    run: str
    model: str
    constructor: str
    constructor_args: dict[str, Any]
    annotate: dict[str, str]
    mode: str
    batch_size: int
    context_length: int
    vocab_size: int
    precision: str
    warmup_steps: int
    measured_steps: int
    seed: int
    device: str

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases of one step in this mode, in their order."""
        return PHASES_OF_MODE[self.mode]


def read_spec(text: str) -> RunSpec:
    """The run that a JSON object describes. ValueError names the key that is unknown, missing or out of its range."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"a run specification is a JSON object, not {type(values).__name__}")
    known = {field.name for field in fields(RunSpec)}
    if unknown := sorted(values.keys() - known):
        raise ValueError(f"run specification has unknown keys {unknown}; known are {sorted(known)}")
    if missing := sorted(known - values.keys()):
        raise ValueError(f"run specification lacks the keys {missing}")
    spec = RunSpec(**values)
    _check_choice("mode", spec.mode, tuple(PHASES_OF_MODE))
    _check_choice("precision", spec.precision, PRECISIONS)
    _check_choice("device", spec.device, DEVICES)
    for name, least in (("batch_size", 1), ("context_length", 1), ("measured_steps", 1), ("warmup_steps", 0)):
        value = getattr(spec, name)
        if type(value) is not int or value < least:
            raise ValueError(f"run specification: {name} is {value!r}, which is no integer of at least {least}")
    return spec


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"run specification: {name} is {value!r}; one of {', '.join(choices)} is wanted")
