"""The arguments of a model's constructor: its parameter names, with values by the names of a grid. Imports nothing.

A text "$name" means the run's value of that name: one of its dimensions (context_length, batch_size), vocab_size,
or a size of its model. Other values are passed unchanged.
"""

from collections.abc import Mapping
from typing import Any

MARK = "$"
SIZES = ("d_model", "num_layers", "num_heads", "d_ff", "rope_theta")
PROJECT_ARGUMENTS = {name: f"{MARK}{name}" for name in ("vocab_size", "context_length", *SIZES)}  # if none are declared


def run_values_named(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The name of the run's value for each argument that has one, by the constructor's name."""
    marked = {name: value for name, value in arguments.items() if isinstance(value, str) and value.startswith(MARK)}
    return {name: value.removeprefix(MARK) for name, value in marked.items()}


def values_by_name(program: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a run specification that arguments may name."""
    return {**program["dimensions"], "vocab_size": program["vocab_size"], **program["sizes"]}


def given_arguments(program: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a run specification with their values. ValueError names an argument without a value."""
    names, values = run_values_named(program["arguments"]), values_by_name(program)
    for argument, name in names.items():
        if name not in values:
            raise ValueError(f"{argument}: {MARK}{name} is not one of {', '.join(values)}")
    return {**program["arguments"], **{argument: values[name] for argument, name in names.items()}}
