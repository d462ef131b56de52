"""The specification of a run: JSON from the grid, checked before anything slow starts. Imports no torch."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from cs336_model.arguments import constructor_arguments
from cs336_model.arithmetic.checkpoints import CHECKPOINT_PATTERN
from cs336_model.program.variants.values import ATTENTIONS, COMPILES, OPTIMIZERS, PARALLELS, PRECISIONS, impossibility
from cs336_model.ranges import PHASES_OF_MODE

AnySpec = TypeVar("AnySpec")
DEVICES = ("auto", "cuda", "cpu")
MODULES = "modules"  # a value of `annotate`: ranges around every module of the model
CHOICES = {
    "mode": tuple(PHASES_OF_MODE), "precision": PRECISIONS, "compile": COMPILES, "attention": ATTENTIONS,
    "parallel": PARALLELS, "optimizer": OPTIMIZERS,
}  # fmt: skip
COUNTS = ("batch_size", "context_length", "gpus")


@dataclass(frozen=True)
class RunSpec:
    """One configuration of the grid: the value of every dimension by its key, and the settings that all runs share.

    `constructor` and `config` are "module:callable". The model is constructor(**arguments), or with `config`,
    constructor(config(**arguments)); see cs336_model.arguments. `annotate` maps the name of a range to the
    "module:function" that becomes this range, or is "modules". `replace` maps a "module:function" to the one that
    replaces it."""

    run: str
    dimensions: dict[str, Any]
    constructor: str
    config: str | None
    arguments: dict[str, Any]
    sizes: dict[str, Any]
    annotate: dict[str, str] | str
    replace: dict[str, str]
    vocab_size: int
    warmup_steps: int
    measured_steps: int
    seed: int
    device: str

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases of one step in this mode, in their order."""
        return PHASES_OF_MODE[self.dimensions["mode"]]

    @property
    def targets(self) -> tuple[str, ...]:
        """Every "module:name" in the specification."""
        annotated = () if self.annotate == MODULES else self.annotate.values()
        constructors = (self.constructor, self.config) if self.config else (self.constructor,)
        return (*constructors, *annotated, *self.replace, *self.replace.values())


def read_spec(text: str) -> RunSpec:
    """The run that a JSON object describes. Raises ValueError with the key that is unknown, missing or out of its
    range, or with the reason why no machine can measure these values together."""
    spec = read_fields(text, RunSpec)
    if not isinstance(spec.dimensions, dict):
        raise ValueError(f"specification: dimensions is {spec.dimensions!r}, not an object")
    check_missing("dimensions of the specification", spec.dimensions, [*CHOICES, *COUNTS, "checkpoint"])
    for name, choices in CHOICES.items():
        check_choice(name, spec.dimensions[name], choices)
    check_choice("device", spec.device, DEVICES)
    for name in COUNTS:
        check_count(name, spec.dimensions[name], minimum=1)
    checkpoint = spec.dimensions["checkpoint"]
    if not isinstance(checkpoint, str) or not re.fullmatch(CHECKPOINT_PATTERN, checkpoint):
        raise ValueError(
            f"specification: checkpoint is {checkpoint!r}; it must be a text that matches {CHECKPOINT_PATTERN}"
        )
    check_count("measured_steps", spec.measured_steps, minimum=1)
    check_count("warmup_steps", spec.warmup_steps, minimum=0)
    constructor_arguments(vars(spec))
    if reason := impossibility(spec.dimensions, spec.constructor):
        raise ValueError(f"specification: {reason}")
    return spec


def read_fields(text: str, spec_class: type[AnySpec]) -> AnySpec:
    """A specification of this class from a JSON object. Raises ValueError with the keys that are unknown or missing."""
    values = json.loads(text)
    if not isinstance(values, dict):
        raise ValueError(f"a specification is a JSON object, not {type(values).__name__}")
    check_keys("specification", values, [field.name for field in fields(spec_class)])
    return spec_class(**values)


def check_keys(name: str, values: dict, known: Iterable[str]) -> None:
    """Raises ValueError unless the keys are exactly the known ones."""
    check_unknown(name, values, known)
    check_missing(name, values, known)


def check_unknown(name: str, values: dict, known: Iterable[str]) -> None:
    """Raises ValueError with the unknown keys."""
    if unknown := sorted(values.keys() - set(known)):
        raise ValueError(f"{name}: unknown keys {unknown}; known are {sorted(known)}")


def check_missing(name: str, values: dict, needed: Iterable[str]) -> None:
    """Raises ValueError with the missing keys."""
    if missing := sorted(set(needed) - values.keys()):
        raise ValueError(f"{name}: missing keys {missing}")


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises ValueError unless the value is one of the choices."""
    if value not in choices:
        raise ValueError(f"specification: {name} is {value!r}; it must be one of {', '.join(choices)}")


def check_count(name: str, value: Any, minimum: int) -> None:
    """Raises ValueError unless the value is an integer, and not below the minimum."""
    if type(value) is not int or value < minimum:
        raise ValueError(f"specification: {name} is {value!r}; it must be an integer, {minimum} or more")
